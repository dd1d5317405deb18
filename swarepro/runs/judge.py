"""Judges a case by its own [expect]: silence without its fault, the finding with it."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from msgspec import structs

from swarepro.bundle.read import open_bundle
from swarepro.case import CaseSpec, Expect, ExpectDiff, PointRef
from swarepro.compare.divergence import compare_bundles
from swarepro.compare.types import BoundaryClasses, BoundaryDiff, Determinism, Divergence
from swarepro.errors import CaseError, SessionError
from swarepro.faults import FAULTS, Effect
from swarepro.kvcache import VIOLATION_KINDS
from swarepro.options import Progress, RunOptions, no_progress
from swarepro.registry import did_you_mean
from swarepro.runs.once import run_to_bundle
from swarepro.runs.prepare import Prepared, prepare
from swarepro.runs.repeat import repeat_prepared
from swarepro.runs.results import CaseResult, CheckResult

Arm = Literal["healthy", "faulty"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmResult:
    """What one arm of a case showed: repeats and one bundle, or the error that ended it."""

    determinism: Determinism | None
    violations: tuple[str, ...]
    error: str | None


def judge_case(case: CaseSpec, *, progress: Progress) -> CaseResult:
    """See `swarepro.api.judge_case`."""
    _check_kinds(case)
    prepared = prepare(case, RunOptions(), progress=progress)
    checks: list[CheckResult] = []
    with tempfile.TemporaryDirectory(prefix="swarepro-") as scratch:
        root = Path(scratch)
        healthy = _run_arm(prepared, (), root / "healthy", progress)
        checks += _check_arm("healthy", case.expect.healthy, healthy)
        if case.fault is not None and case.expect.faulty is not None:
            faulty = _run_arm(prepared, (case.fault,), root / "faulty", progress)
            checks += _check_arm("faulty", case.expect.faulty, faulty)
            if case.expect.diff is not None:
                found = compare_bundles(
                    open_bundle(root / "healthy"),
                    open_bundle(root / "faulty"),
                    align="step",
                    tolerance=None,
                    verify=False,
                    progress=no_progress,
                )
                checks += _check_diff(case.fault, case.expect.diff, found)
    return CaseResult(case=case, checks=tuple(checks))


def _check_kinds(case: CaseSpec) -> None:
    """Refuse a kind of violation that no check reports: it could never be met."""
    for arm in (case.expect.healthy, case.expect.faulty):
        for kind in () if arm is None else arm.violations:
            if kind not in VIOLATION_KINDS:
                raise CaseError(
                    f"{case.name}: [expect] names an unknown violation {kind!r}",
                    hint=did_you_mean(kind, VIOLATION_KINDS)
                    or f"known: {', '.join(VIOLATION_KINDS)}",
                )


def _run_arm(
    prepared: Prepared, faults: tuple[str, ...], folder: Path, progress: Progress
) -> ArmResult:
    """Repeat one arm and write one bundle of it; both arms share the loaded weights."""
    prepared = replace(prepared, options=replace(prepared.options, faults=faults))
    digests = replace(prepared, capture=structs.replace(prepared.capture, store="digest"))
    try:
        repeats = repeat_prepared(digests, repeats=prepared.case.repeats, progress=progress)
        manifest = run_to_bundle(
            prepared, folder, schedule=prepared.schedule, on_step=lambda step: None
        )
    except SessionError as error:
        return ArmResult(determinism=None, violations=(), error=type(error).__name__)
    kinds = {violation.kind for stage in manifest.ownership for violation in stage.violations}
    return ArmResult(determinism=repeats.determinism, violations=tuple(sorted(kinds)), error=None)


def _check_arm(arm: Arm, expect: Expect, found: ArmResult) -> Iterator[CheckResult]:
    yield _check(arm, "error", expect.error or "none", found.error or "none")
    if found.determinism is None:
        return
    if expect.verdict is not None:
        yield _check(arm, "verdict", expect.verdict, found.determinism.verdict)
    for what in ("earliest_varying", "first_value_varying"):
        yield _check(
            arm, what, _wanted(getattr(expect, what)), _found(getattr(found.determinism, what))
        )
    yield _check(
        arm, "outputs_vary", _steps(expect.outputs_vary), _steps(found.determinism.outputs_vary)
    )
    yield _check(
        arm,
        "violations",
        ", ".join(expect.violations) or "none",
        ", ".join(found.violations) or "none",
    )


def _check_diff(fault: str, expect: ExpectDiff, found: Divergence) -> Iterator[CheckResult]:
    yield _check("diff", "verdict", expect.verdict, found.verdict)
    for what in ("first", "first_state", "first_value"):
        yield _check("diff", what, _wanted(getattr(expect, what)), _found(getattr(found, what)))
    claimed = Effect.IDENTICAL if expect.hides_effect else FAULTS.get(fault).effect
    shown = Effect.IDENTICAL if found.first_value is None else Effect.DIVERGES
    yield _check("diff", "effect on values", claimed, shown)


def _check(
    arm: Literal["healthy", "faulty", "diff"], what: str, wanted: str, found: str
) -> CheckResult:
    return CheckResult(arm=arm, what=what, wanted=wanted, found=found, ok=wanted == found)


def _wanted(point: PointRef | None) -> str:
    return "none" if point is None else f"step {point.step} {point.name}"


def _found(boundary: BoundaryClasses | BoundaryDiff | None) -> str:
    return "none" if boundary is None else f"step {boundary.step} {boundary.name}"


def _steps(steps: tuple[int, ...]) -> str:
    return ", ".join(map(str, steps)) or "none"
