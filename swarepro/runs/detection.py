"""Which detector answers what to which fault, as the shipped cases state it."""

from swarepro.case import CaseSpec
from swarepro.expect import Expect, ExpectDiff, PointRef
from swarepro.faults import FAULTS
from swarepro.runs.results import DetectionRow

SILENT = "silent"


def detection_row(case: CaseSpec) -> DetectionRow:
    """Return what each detector must answer to the fault of ``case``."""
    expect = case.expect
    wanted = expect.healthy if expect.faulty is None else expect.faulty
    return DetectionRow(
        case=case.name,
        summary=case.summary,
        fault=case.fault,
        mechanism="" if case.fault is None else FAULTS.get(case.fault).mechanism,
        ownership=_ownership(wanted),
        diff=_diff(expect.diff, wanted),
        floor=_floor(expect.diff),
        determinism=_determinism(wanted),
        fill=_fill(wanted),
        healthy_error=expect.healthy.error,
    )


def _ownership(wanted: Expect) -> str:
    first = wanted.first_violation
    if first is None:
        return SILENT if not wanted.violations else ", ".join(wanted.violations)
    layer = "" if first.layer is None else f" L{first.layer}"
    return f"{first.kind} @{first.step}{layer}"


def _diff(expect: ExpectDiff | None, wanted: Expect) -> str:
    if expect is None:
        return "no bundle" if wanted.error else "not asked"
    if expect.within is not None:
        return f"rounding from {_point(expect.first_value)}"
    if expect.first_value is not None:
        lost = expect.first_nonfinite
        finite = "" if lost is None else f", not finite from {_point(lost)}"
        return f"value {_point(expect.first_value)}{_rows(expect)}{finite}"
    if expect.first_state is not None:
        return f"state {_point(expect.first_state)}"
    return SILENT if expect.first is None else f"metadata {_point(expect.first)}"


def _floor(expect: ExpectDiff | None) -> str:
    if expect is None or expect.floor is None:
        return "not asked"
    floor = expect.floor
    numbers = [] if floor.first is None else [f"from {_point(floor.first)}"]
    if floor.drift_at_most is not None:
        numbers.append(f"at most {floor.drift_at_most:g} nat")
    if floor.gap_at_most is not None:
        numbers.append(f"flips at a gap of at most {floor.gap_at_most:g}")
    return f"{floor.verdict} {', '.join(numbers)}".rstrip()


def _rows(expect: ExpectDiff) -> str:
    rows, heads = expect.value_rows, expect.value_heads
    shown = "" if rows is None else f", {rows.count} row{'s' * (rows.count > 1)} from {rows.first}"
    if not heads:
        return shown
    return f"{shown}, head{'s' * (len(heads) > 1)} {', '.join(map(str, heads))}"


def _determinism(wanted: Expect) -> str:
    if wanted.error is not None:
        return wanted.error
    if wanted.earliest_varying is None:
        return SILENT
    return f"varies from {_point(wanted.earliest_varying)}"


def _fill(wanted: Expect) -> str:
    if wanted.fill is None:
        return "not asked"
    if wanted.fill.first is None:
        return SILENT
    return f"{wanted.fill.verdict} {_point(wanted.fill.first)}"


def _point(point: PointRef | None) -> str:
    return "-" if point is None else f"@{point.step} {point.name}"
