"""What a case states about itself: silence without its fault, the finding with it. No torch."""

from typing import Annotated, Literal

import msgspec

from swarepro import errors, points
from swarepro.errors import CaseError, SwareproError
from swarepro.registry import did_you_mean
from swarepro.rules import VIOLATION_KINDS

MOST = 2**20
"""More tokens, positions or steps than any session has: larger numbers are mistakes."""

Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
_ERRORS = tuple(
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.SwareproError)
)


class Strict(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Base of what a case file holds: an unknown key is an error."""


class PointRef(Strict, frozen=True, kw_only=True):
    """A boundary that a case expects, e.g. ``{step = 0, name = "L0_kv_slice_post_write"}``."""

    step: Count
    name: str


class ViolationRef(Strict, frozen=True, kw_only=True):
    """The first ownership violation that a case expects; ``layer`` None = it has none."""

    kind: str
    step: Count
    layer: Count | None = None


class ExpectFill(Strict, frozen=True, kw_only=True):
    """What `fill-probe` must find; ``first`` is the first boundary that shows the verdict."""

    verdict: Literal["INDEPENDENT", "MASKED_LANE", "UNWRITTEN_READ"]
    first: PointRef | None = None


class Expect(Strict, frozen=True, kw_only=True):
    """What must be found in one arm of a case.

    Attributes:
        verdict: of the repeats.
        earliest_varying: earliest boundary that differs between repeats.
        first_value_varying: first value boundary that differs between repeats.
        outputs_vary: steps whose last boundary (logits or the hidden state sent on) differs between
            repeats.
        violations: kinds in the ownership report, sorted, without repetition.
        first_violation: the headline of the ownership report, one of ``violations``; where it is
            left out, only those are looked at.
        fill: what `fill-probe` must find; None = it is not run.
        error: class of the error that the run must end with, e.g. ``"CapacityError"``; then only
            violations are expected beside it.
    """

    verdict: Literal["DETERMINISTIC", "NONDETERMINISTIC"] | None = None
    earliest_varying: PointRef | None = None
    first_value_varying: PointRef | None = None
    outputs_vary: tuple[Count, ...] = ()
    violations: tuple[str, ...] = ()
    first_violation: ViolationRef | None = None
    fill: ExpectFill | None = None
    error: str | None = None


class ToleranceSpec(Strict, frozen=True, kw_only=True):
    """``abs(a - b) <= atol + rtol * abs(b)``."""

    atol: float
    rtol: float


class BaselineSpec(Strict, frozen=True, kw_only=True):
    """What the baseline of a diff has otherwise than its case; at least one is set.

    Attributes:
        swa_capacity: of the SWA pool, in slots.
        evict: whether SWA slots of positions that no later query can see are freed.
    """

    swa_capacity: Annotated[int, msgspec.Meta(ge=1, le=MOST)] | None = None
    evict: bool | None = None


class RowsRef(Strict, frozen=True, kw_only=True):
    """Which rows of a boundary differ: ``first``, the lowest position, and how many do."""

    first: Count
    count: Annotated[int, msgspec.Meta(ge=1, le=MOST)]


class ExpectFloor(Strict, frozen=True, kw_only=True):
    """What the arms must be to each other against the noise floor of the healthy case.

    Attributes:
        verdict: of the comparison.
        first: earliest boundary above the floor, of a ``WRONG`` one.
        gap_at_most: how far apart the logits of two tokens may be where rounding, or the sampler,
            chose the other one; None = no token may flip.
        drift_at_most: how far the log-probability of a prediction may move, in nat; None = it is
            not looked at.
    """

    verdict: Literal["WRONG", "NOISE", "TIE"]
    first: PointRef | None = None
    gap_at_most: Annotated[float, msgspec.Meta(ge=0)] | None = None
    drift_at_most: Annotated[float, msgspec.Meta(ge=0)] | None = None


class ExpectDiff(Strict, frozen=True, kw_only=True):
    """What `diff` of the healthy arm (baseline) and the faulty arm (target) must find.

    Attributes:
        verdict: of the comparison.
        first: earliest diverging boundary of any kind.
        first_state: earliest diverging state boundary.
        first_value: earliest diverging value boundary.
        value_rows: rows of it that differ; None = they are not looked at.
        value_heads: its heads that differ, ascending; empty = they are not looked at.
        first_nonfinite: the first value boundary of the faulty arm that holds a NaN or an infinity;
            the healthy arm has none. None = it is not looked for.
        hides_effect: the case hides on purpose what its fault claims to do to values.
        within: tolerance under which the arms must agree: what differs is rounding.
        floor: what they must be to each other against a noise floor; None = none is measured.
        baseline: what the healthy arm of the diff has otherwise, so that it can do what is refused
            in the case's own pools.
        fill: what pools and scratch hold in both arms of the diff that nobody wrote; None = it is
            not chosen.
        seed: of the seeded schedule that both arms of the diff run under, where schedules can be
            had; None = the schedule of a single run.
    """

    verdict: Literal["IDENTICAL", "DIVERGED"]
    first: PointRef | None = None
    first_state: PointRef | None = None
    first_value: PointRef | None = None
    value_rows: RowsRef | None = None
    value_heads: tuple[Count, ...] = ()
    first_nonfinite: PointRef | None = None
    hides_effect: bool = False
    within: ToleranceSpec | None = None
    floor: ExpectFloor | None = None
    baseline: BaselineSpec | None = None
    fill: Literal["zero", "large", "nan"] | None = None
    seed: Annotated[int, msgspec.Meta(ge=0, le=MOST)] | None = None


class CaseExpect(Strict, frozen=True, kw_only=True):
    """The proof that a case carries: silence without its fault, the finding with it."""

    healthy: Expect = Expect(verdict="DETERMINISTIC")
    faulty: Expect | None = None
    diff: ExpectDiff | None = None


def check_expect(expect: CaseExpect, fault: str | None, source: str) -> None:
    """Refuse expectations that would never be looked at, or that nothing can meet.

    Args:
        expect: of the case.
        fault: of the case.
        source: named in errors.

    Raises:
        CaseError: with the arm, what it says, and what was wanted.
    """
    if fault is None and (expect.faulty is not None or expect.diff is not None):
        raise CaseError(
            f"{source}: [expect.faulty] and [expect.diff] need a fault; the case names none",
            hint='add fault = "NAME"; `swarepro faults` lists them',
        )
    if fault is not None and expect.faulty is None:
        raise CaseError(
            f"{source}: the case names the fault {fault!r} and does not say what it must show",
            hint="add an [expect.faulty] table",
        )
    for arm, wanted in (("healthy", expect.healthy), ("faulty", expect.faulty)):
        if wanted is None:
            continue
        where = f"{source}: [expect.{arm}]"
        _check_error(wanted, where)
        _check_violations(wanted, where)
        _check_fill(wanted.fill, where)
        _check_points(wanted, where)
    if expect.diff is not None:
        _check_points(expect.diff, f"{source}: [expect.diff]")
        _check_rows(expect.diff, f"{source}: [expect.diff]")
        _check_floor(expect.diff, f"{source}: [expect.diff]")
        if expect.diff.baseline == BaselineSpec():
            raise CaseError(
                f"{source}: [expect.diff] has a baseline that is as the case",
                hint="set swa_capacity or evict, or leave the baseline out",
            )
        arms = {"faulty": expect.faulty}
        if expect.diff.baseline is None:
            arms["healthy"] = expect.healthy
        for arm, wanted in arms.items():
            if wanted is not None and wanted.error is not None:
                raise CaseError(
                    f"{source}: [expect.diff] compares two bundles, and the {arm} arm expects"
                    f" the error {wanted.error}",
                    hint="give a baseline that can run"
                    if arm == "healthy"
                    else "leave [expect.diff] out: an arm that ends with an error has no bundle",
                )


_NOT_AFTER_AN_ERROR = ("verdict", "earliest_varying", "first_value_varying", "outputs_vary", "fill")
_KINDS = {
    "first_value_varying": points.PointKind.VALUE,
    "first_state": points.PointKind.STATE,
    "first_value": points.PointKind.VALUE,
    "first_nonfinite": points.PointKind.VALUE,
}
"""The kind of boundary that a field finds; the other fields find any."""


def _check_error(arm: Expect, where: str) -> None:
    if arm.error is None:
        return
    if arm.error not in _ERRORS:
        raise CaseError(
            f"{where} names an unknown error {arm.error!r}",
            hint=did_you_mean(arm.error, _ERRORS) or f"known: {', '.join(_ERRORS)}",
        )
    unseen = [name for name in _NOT_AFTER_AN_ERROR if getattr(arm, name) not in (None, ())]
    if unseen:
        raise CaseError(
            f"{where} expects the error {arm.error}, and {', '.join(unseen)} beside it:"
            " a run that ends with an error is not repeated, compared or probed",
            hint=f"leave out {', '.join(unseen)}, or the error",
        )


def _check_violations(arm: Expect, where: str) -> None:
    first = () if arm.first_violation is None else (arm.first_violation.kind,)
    for kind in (*arm.violations, *first):
        if kind not in VIOLATION_KINDS:
            raise CaseError(
                f"{where} names an unknown violation {kind!r}",
                hint=did_you_mean(kind, VIOLATION_KINDS) or f"known: {', '.join(VIOLATION_KINDS)}",
            )
    if list(arm.violations) != sorted(set(arm.violations)):
        raise CaseError(
            f"{where}: violations are sorted, each once; found {', '.join(arm.violations)}",
            hint=f"write {', '.join(sorted(set(arm.violations)))}",
        )
    if first and first[0] not in arm.violations:
        raise CaseError(
            f"{where}: first_violation is {first[0]!r}, and violations are"
            f" {', '.join(arm.violations) or 'none'}",
            hint=f"add {first[0]!r} to violations",
        )


def _check_fill(fill: ExpectFill | None, where: str) -> None:
    if fill is None or fill.verdict != "INDEPENDENT" or fill.first is None:
        return
    raise CaseError(
        f"{where}: fill is INDEPENDENT, and {fill.first.name!r} is to be the first that depends"
        " on it",
        hint="leave out first, or state another verdict",
    )


def _check_rows(diff: ExpectDiff, where: str) -> None:
    given = {"value_rows": diff.value_rows is not None, "value_heads": bool(diff.value_heads)}
    asked = [name for name, is_given in given.items() if is_given]
    if asked and diff.first_value is None:
        raise CaseError(
            f"{where} has {' and '.join(asked)}, and no first_value whose they are",
            hint=f"name the first_value, or leave out {' and '.join(asked)}",
        )
    if not diff.value_heads or diff.first_value is None:
        return
    if list(diff.value_heads) != sorted(set(diff.value_heads)):
        raise CaseError(
            f"{where}: value_heads are ascending, each once; found {list(diff.value_heads)}",
            hint=f"write {sorted(set(diff.value_heads))}",
        )
    name = diff.first_value.name
    if not points.HEAD_DIMS & set(points.by_shown_name(name).dims[1:]):
        raise CaseError(
            f"{where}: value_heads are {list(diff.value_heads)}, and {name!r} has no heads",
            hint="leave out value_heads",
        )


def _check_floor(diff: ExpectDiff, where: str) -> None:
    floor = diff.floor
    if floor is None:
        return
    odd = [
        name
        for name, is_odd in (
            ("first", floor.first is not None and floor.verdict != "WRONG"),
            ("gap_at_most", floor.gap_at_most is not None and floor.verdict == "WRONG"),
            ("drift_at_most", floor.drift_at_most is not None and floor.verdict != "NOISE"),
        )
        if is_odd
    ]
    if odd:
        raise CaseError(
            f"{where}: floor is {floor.verdict}, and {' and '.join(odd)} says nothing of that",
            hint="first belongs to WRONG, drift_at_most to NOISE, gap_at_most to NOISE and TIE",
        )
    if diff.baseline is not None or diff.fill is not None or diff.seed is not None:
        raise CaseError(
            f"{where}: a floor is of the case as it is run alone, and the diff has a baseline, a"
            " fill or a seed of its own",
            hint="leave out floor, or what the diff has of its own",
        )


def _check_points(wanted: Expect | ExpectDiff, where: str) -> None:
    named = {name: getattr(wanted, name) for name in wanted.__struct_fields__}
    if isinstance(wanted, Expect) and wanted.fill is not None:
        named["fill.first"] = wanted.fill.first
    if isinstance(wanted, ExpectDiff) and wanted.floor is not None:
        named["floor.first"] = wanted.floor.first
    for field, ref in named.items():
        if not isinstance(ref, PointRef):
            continue
        try:
            point = points.by_shown_name(ref.name)
        except SwareproError as error:
            raise CaseError(f"{where} {field}: {error.message}", hint=error.hint) from None
        kind = _KINDS.get(field, point.kind)
        if point.kind is not kind:
            raise CaseError(
                f"{where} {field}: {ref.name!r} is a {point.kind} boundary, never a {kind}",
                hint="`swarepro points` lists the boundaries of each kind",
            )
