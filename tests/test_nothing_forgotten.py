"""The other half of CONTRIBUTING.md: what is added here and forgotten there fails."""

import dataclasses
import inspect
from pathlib import Path

import pytest

import swarepro_kernels
from swarepro import points
from swarepro.case import CaseSpec, load_case
from swarepro.errors import SwareproError
from swarepro.expect import PointRef
from swarepro.faults import FAULTS
from swarepro.runtime.parts import StageParts
from swarepro.runtime.routes import ROUTE_CODES
from swarepro_kernels import reference

ROOT = Path(__file__).resolve().parent.parent
CASES = sorted((ROOT / "cases").glob("*.toml"))
KERNELS = sorted(set(swarepro_kernels.__all__) - {"digest_hex"})  # which only formats
LAUNCH_ONLY = {"order", "config", "num_splits", "scratch", "out"}
"""How a kernel is launched and where its result goes; a twin needs none of it."""
LAYERS = range(64)
SHOWN = {
    point.concrete(layer)
    for point in points.ALL
    for layer in (LAYERS if point.scope is points.Scope.LAYER else [None])
}

each_case = pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)


def parameters(function: object) -> list[tuple[str, object, object]]:
    """Return (name, kind, default) of what a function computes with, in order."""
    return [
        (parameter.name, parameter.kind, parameter.default)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name not in LAUNCH_ONLY
    ]


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_has_a_twin_of_the_same_signature(name: str) -> None:
    kernel, twin = getattr(swarepro_kernels, name), getattr(reference, name, None)
    assert twin is not None, f"swarepro_kernels.reference has no {name}"
    assert parameters(kernel) == parameters(twin)


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_has_a_test(name: str) -> None:
    tests = [
        path.read_text(encoding="utf-8") for path in (ROOT / "tests/kernels").glob("test_*.py")
    ]
    assert any(name in text for text in tests)


@pytest.mark.parametrize("name", FAULTS.names())
def test_every_fault_is_proved_by_a_case(name: str) -> None:
    assert any(load_case(path).fault == name for path in CASES)


@pytest.mark.parametrize("name", FAULTS.names())
def test_the_effect_that_a_fault_claims_is_checked_by_a_diff(name: str) -> None:
    diffs = [case.expect.diff for case in map(load_case, CASES) if case.fault == name]
    assert any(diff is not None and not diff.hides_effect for diff in diffs)


@pytest.mark.parametrize("name", FAULTS.names())
def test_every_fault_says_what_it_is_and_what_it_wraps(name: str) -> None:
    fault = FAULTS.get(name)
    assert fault.name == name
    assert fault.summary
    assert fault.part in {field.name for field in dataclasses.fields(StageParts)}


@each_case
def test_every_case_is_called_as_its_file_and_says_what_it_is(path: Path) -> None:
    case = load_case(path)
    assert case.name == path.stem
    assert case.summary


@each_case
def test_every_case_proves_something(path: Path) -> None:
    case = load_case(path)
    assert case.fault is None or case.fault in FAULTS
    if case.fault is not None:
        assert case.expect.faulty is not None


def expected_points(case: CaseSpec) -> list[PointRef]:
    refs = []
    for arm in (case.expect.healthy, case.expect.faulty, case.expect.diff):
        if arm is not None:
            values = [getattr(arm, field) for field in arm.__struct_fields__]
            refs += [value for value in values if isinstance(value, PointRef)]
    return refs


@each_case
def test_every_expected_boundary_is_declared(path: Path) -> None:
    case = load_case(path)
    assert {ref.name for ref in expected_points(case)} <= SHOWN


@each_case
def test_every_expected_error_exists(path: Path) -> None:
    family = {SwareproError.__name__}
    queue = [SwareproError]
    while queue:
        kind = queue.pop()
        queue += kind.__subclasses__()
        family.add(kind.__name__)
    expect = load_case(path).expect
    for arm in (expect.healthy, expect.faulty):
        assert arm is None or arm.error is None or arm.error in family


def test_every_route_has_a_code_of_its_own() -> None:
    assert ROUTE_CODES
    assert len(set(ROUTE_CODES.values())) == len(ROUTE_CODES)
