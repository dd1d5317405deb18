"""Judges a case by its own [expect]: silence without its fault, the finding with it."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from msgspec import structs

from swarepro.bundle.read import open_bundle
from swarepro.bundle.schema import Violation
from swarepro.case import CaseSpec
from swarepro.checkpoint import open_checkpoint
from swarepro.compare.divergence import compare_bundles
from swarepro.compare.fills import FillDependence, FillProbe
from swarepro.compare.finite import first_nonfinite
from swarepro.compare.types import (
    BoundaryClasses,
    BoundaryDiff,
    Determinism,
    Divergence,
    Tolerance,
    Verdict,
)
from swarepro.errors import SessionError
from swarepro.expect import (
    BaselineSpec,
    Expect,
    ExpectDiff,
    PointRef,
    ViolationRef,
    check_expect,
)
from swarepro.faults import FAULTS, Effect
from swarepro.options import Progress, RunOptions, no_progress
from swarepro.runs.check_floor import check_floor
from swarepro.runs.fill_probe import probe_prepared
from swarepro.runs.once import run_to_bundle
from swarepro.runs.prepare import Prepared, plan_case, prepare
from swarepro.runs.repeat import repeat_prepared
from swarepro.runs.results import CaseResult, CheckResult
from swarepro.runs.watch import watch_prepared

Arm = Literal["healthy", "faulty"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmResult:
    """What one arm of a case showed: repeats and one bundle, or the error that ended it.

    Attributes:
        violations: kinds, sorted.
        first: the first violation.
        fill: of the probe, where the case asks for it.
    """

    determinism: Determinism | None
    violations: tuple[str, ...]
    first: Violation | None
    fill: FillProbe | None
    error: str | None


def judge_case(case: CaseSpec, *, progress: Progress) -> CaseResult:
    """See `swarepro.api.judge_case`."""
    check_expect(case.expect, case.fault, case.name)
    prepared = prepare(case, RunOptions(), progress=progress)
    checks: list[CheckResult] = []
    with tempfile.TemporaryDirectory(prefix="swarepro-") as scratch:
        root = Path(scratch)
        healthy = _run_arm(prepared, (), root / "healthy", case.expect.healthy, progress)
        checks += _check_arm("healthy", case.expect.healthy, healthy)
        if case.fault is not None and case.expect.faulty is not None:
            faults = (case.fault,)
            faulty = _run_arm(prepared, faults, root / "faulty", case.expect.faulty, progress)
            checks += _check_arm("faulty", case.expect.faulty, faulty)
            if case.expect.diff is not None:
                root = _write_diff(prepared, faults, case.expect.diff, root)
                checks += _check_diff(case.fault, case.expect.diff, root)
                if case.expect.diff.floor is not None:
                    checks += check_floor(case, case.expect.diff.floor, root, progress=progress)
    return CaseResult(case=case, checks=tuple(checks))


def _write_diff(prepared: Prepared, faults: tuple[str, ...], diff: ExpectDiff, root: Path) -> Path:
    """Return the folder of the bundles to compare: the arms', or ones that are run for the diff."""
    if diff.baseline is None and diff.fill is None and diff.seed is None:
        return root
    options = replace(prepared.options, fill=diff.fill)
    arms = {
        "healthy": replace(_baseline(prepared, diff.baseline), options=options),
        "faulty": replace(prepared, options=replace(options, faults=faults)),
    }
    root = root / "diff"
    root.mkdir()
    seeded = diff.seed is not None and prepared.schedule != "hardware"
    schedule = f"seeded:{diff.seed}" if seeded else prepared.schedule
    for arm, what in arms.items():
        run_to_bundle(what, root / arm, schedule=schedule, on_step=lambda step: None)
    return root


def _baseline(prepared: Prepared, baseline: BaselineSpec | None) -> Prepared:
    """Return ``prepared`` in the pools of the baseline, with the weights that are loaded."""
    case = prepared.case
    if baseline is None:
        return prepared
    if baseline.swa_capacity is not None:
        case = structs.replace(case, swa_capacity=baseline.swa_capacity)
    if baseline.evict is not None:
        case = structs.replace(case, evict=baseline.evict)
    return replace(prepared, case=case, plan=plan_case(case, open_checkpoint(case.model)))


def _compare(root: Path, tolerance: Tolerance | None) -> Divergence:
    return compare_bundles(
        open_bundle(root / "healthy"),
        open_bundle(root / "faulty"),
        align="step",
        tolerance=tolerance,
        verify=False,
        progress=no_progress,
    )


def _run_arm(
    prepared: Prepared, faults: tuple[str, ...], folder: Path, expect: Expect, progress: Progress
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
        seen = watch_prepared(prepared, progress=progress).violations
        return _arm_result(seen, error=type(error).__name__)
    seen = tuple(violation for owned in manifest.ownership for violation in owned.violations)
    fill = None if expect.fill is None else probe_prepared(prepared, progress=progress)
    return _arm_result(seen, determinism=repeats.determinism, fill=fill)


def _arm_result(
    seen: tuple[Violation, ...],
    *,
    determinism: Determinism | None = None,
    fill: FillProbe | None = None,
    error: str | None = None,
) -> ArmResult:
    return ArmResult(
        determinism=determinism,
        violations=tuple(sorted({violation.kind for violation in seen})),
        first=min(seen, key=lambda violation: violation.order, default=None),
        fill=fill,
        error=error,
    )


def _check_arm(arm: Arm, expect: Expect, found: ArmResult) -> Iterator[CheckResult]:
    yield _check(arm, "error", expect.error or "none", found.error or "none")
    yield _check(
        arm,
        "violations",
        ", ".join(expect.violations) or "none",
        ", ".join(found.violations) or "none",
    )
    if expect.first_violation is not None:
        yield _check(
            arm,
            "first violation",
            _violation(expect.first_violation),
            "none" if found.first is None else _violation(found.first),
        )
    if found.determinism is None:
        return
    if expect.verdict is not None:
        yield _check(arm, "verdict", expect.verdict, found.determinism.verdict)
    for what in ("earliest_varying", "first_value_varying"):
        yield _check(
            arm, what, _wanted(getattr(expect, what)), _found(getattr(found.determinism, what))
        )
    yield _check(
        arm, "outputs_vary", _numbers(expect.outputs_vary), _numbers(found.determinism.outputs_vary)
    )
    if expect.fill is not None and found.fill is not None:
        yield _check(arm, "fill-probe", expect.fill.verdict, found.fill.verdict)
        yield _check(arm, "first by fill", _wanted(expect.fill.first), _found(found.fill.first))


def _check_diff(fault: str, expect: ExpectDiff, root: Path) -> Iterator[CheckResult]:
    found = _compare(root, None)
    yield _check("diff", "verdict", expect.verdict, found.verdict)
    for what in ("first", "first_state", "first_value"):
        yield _check("diff", what, _wanted(getattr(expect, what)), _found(getattr(found, what)))
    numbers = None if found.first_value is None else found.first_value.numbers
    if expect.value_rows is not None:
        rows = expect.value_rows
        where = () if numbers is None else numbers.positions
        yield _check("diff", "value_rows", _rows(rows.first, rows.count), _rows(*_extent(where)))
    if expect.value_heads:
        heads = () if numbers is None else numbers.heads
        yield _check("diff", "value_heads", _numbers(expect.value_heads), _numbers(heads))
    if expect.first_nonfinite is not None:
        yield _check("diff", "first_nonfinite", _wanted(expect.first_nonfinite), _nonfinite(root))
    shown = Effect.IDENTICAL if found.first_value is None else Effect.DIVERGES
    if expect.within is not None:
        tolerance = Tolerance(atol=expect.within.atol, rtol=expect.within.rtol)
        within = _compare(root, tolerance).verdict
        yield _check("diff", "within tolerance", Verdict.WITHIN_TOLERANCE, within)
        if shown is Effect.DIVERGES and within is Verdict.WITHIN_TOLERANCE:
            shown = Effect.ROUNDING
    claimed = Effect.IDENTICAL if expect.hides_effect else FAULTS.get(fault).effect
    yield _check("diff", "effect on values", claimed, shown)


def _nonfinite(root: Path) -> str:
    """Return where the faulty arm is not finite, or that the healthy one is not."""
    healthy, faulty = (first_nonfinite(open_bundle(root / arm)) for arm in ("healthy", "faulty"))
    if healthy is not None:
        return f"step {healthy.step} {healthy.name} of the healthy arm"
    return "none" if faulty is None else f"step {faulty.step} {faulty.name}"


def _check(
    arm: Literal["healthy", "faulty", "diff"], what: str, wanted: str, found: str
) -> CheckResult:
    return CheckResult(arm=arm, what=what, wanted=wanted, found=found, ok=wanted == found)


def _wanted(point: PointRef | None) -> str:
    return "none" if point is None else f"step {point.step} {point.name}"


def _violation(found: ViolationRef | Violation) -> str:
    layer = "" if found.layer is None else f" layer {found.layer}"
    return f"{found.kind} step {found.step}{layer}"


def _found(boundary: BoundaryClasses | BoundaryDiff | FillDependence | None) -> str:
    return "none" if boundary is None else f"step {boundary.step} {boundary.name}"


def _extent(positions: tuple[int, ...]) -> tuple[int, int]:
    return positions[0] if positions else 0, len(positions)


def _rows(first: int, count: int) -> str:
    return f"{count} from position {first}" if count else "none"


def _numbers(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers)) or "none"
