"""A fault, and a factor, wraps exactly the part that it names."""

from dataclasses import fields

import pytest

from swarepro import api
from swarepro.capture import MemorySink
from swarepro.faults import FAULTS
from swarepro.interventions import FACTORS, Means
from swarepro.options import RunOptions, no_progress
from swarepro.runs.once import execution
from swarepro.runs.prepare import prepare
from swarepro.runtime.parts import PartWrapper, StageParts


@pytest.fixture(scope="module")
def parts() -> StageParts:
    case = api.find_case("anchor-a")
    prepared = prepare(case, RunOptions(ownership=False), copies=0, progress=no_progress)
    return execution(prepared, MemorySink([]), schedule="program")._stages[0].parts


def wrapped(wrap: PartWrapper, parts: StageParts) -> set[str]:
    after = wrap(parts)
    names = [field.name for field in fields(StageParts)]
    return {name for name in names if getattr(after, name) is not getattr(parts, name)}


@pytest.mark.parametrize("name", FAULTS.names())
def test_a_fault_wraps_the_part_that_it_names(name: str, parts: StageParts) -> None:
    fault = FAULTS.get(name)
    assert wrapped(fault.wrap, parts) == {fault.part}


@pytest.mark.parametrize("name", FACTORS.names())
def test_a_factor_wraps_the_part_that_it_names(name: str, parts: StageParts) -> None:
    factor = FACTORS.get(name)
    means = Means(
        other_attention=lambda schedule: parts.attention.__class__(), synchronize=lambda: None
    )
    expected = set() if factor.part in ("schedule", "plan", "model") else {factor.part}
    assert wrapped(factor.wrap(means), parts) == expected
    assert (factor.schedule is not None) is (factor.part == "schedule")
    assert (factor.steps is not None) is (factor.part == "plan")
    assert (factor.dtype is not None) is (factor.part == "model")


def test_two_parts_would_be_seen(parts: StageParts) -> None:
    """The control."""

    def both(before: StageParts) -> StageParts:
        return FAULTS.get("copy-not-waited-for").wrap(
            FAULTS.get("window-of-last-keys").wrap(before)
        )

    assert wrapped(both, parts) == {"attention", "store"}
