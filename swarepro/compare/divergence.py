"""Compares two bundles: where they diverge first, what is a source, and what cannot be told."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from math import isfinite

from swarepro.bundle.captured import lacking
from swarepro.bundle.read import Bundle
from swarepro.bundle.schema import TensorRecord
from swarepro.compare.align import (
    Align,
    align_positions,
    align_steps,
    choose_align,
    intended,
    require_tolerance,
    unalignable,
)
from swarepro.compare.inputs import Inputs
from swarepro.compare.judge import Judge, Judged
from swarepro.compare.names import shown_names
from swarepro.compare.origin import find_inputs, origin_of
from swarepro.compare.patterns import Off, patterns
from swarepro.compare.rows import Missing, whole_records
from swarepro.compare.settings import differences, tokens_differ
from swarepro.compare.steadiness import Steadiness
from swarepro.compare.steps import last_common_step, several_sessions
from swarepro.compare.types import (
    BoundaryDiff,
    Divergence,
    OneSided,
    Origin,
    Tolerance,
    Verdict,
)
from swarepro.errors import IncomparableError, UsageError
from swarepro.points import PointKind

Progress = Callable[[str, int, int], None]
MAX_SOURCES = 8
"""Earliest boundaries of a bitwise comparison that get numbers where no captured input differs; the
rest is judged by digest."""


def _no_progress(what: str, done: int, total: int) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class _Aligned:
    """What either alignment comes down to.

    Attributes:
        num_identical: boundaries.
        identical: their baseline records (several a boundary when aligned by position).
        judged: all other boundaries, in execution order.
        whole: by position, the baseline's records all of whose rows are compared.
        rereads: by position, slices that were read for `swarepro.compare.steadiness`.
        unsteady: likewise, the baseline's records that it shows otherwise than it wrote them.
    """

    num_identical: int
    identical: list[TensorRecord]
    judged: list[Judged]
    only_baseline: tuple[Missing, ...]
    only_target: tuple[Missing, ...]
    skipped: tuple[str, ...]
    whole: tuple[TensorRecord, ...] = ()
    rereads: int = 0
    unsteady: tuple[TensorRecord, ...] = ()


def compare_bundles(
    baseline: Bundle,
    target: Bundle,
    *,
    align: Align | None = None,
    tolerance: Tolerance | None = None,
    verify: bool = False,
    progress: Progress = _no_progress,
) -> Divergence:
    """Compare two runs.

    Args:
        baseline: what the other is measured against.
        target: the other.
        align: None = ``step`` when both ran the same steps, as far as both go, else ``position``.
        tolerance: None = bitwise, by digest; only the tensors that carry the answer are opened.
            Under a tolerance every pair with other digests is opened.
        verify: hash every stored tensor against its record first.
        progress: called with what is done, how many parts are done, and how many there are.

    Raises:
        BundleError: a tensor is not what its record says.
        IncomparableError: nothing can be judged, or a tolerance is needed.
        UsageError: the tolerance is negative or not finite.
    """
    _check_tolerance(tolerance)
    for bundle in (baseline, target):
        if not bundle.records:
            raise IncomparableError(
                f"{bundle.path} is empty: nothing was captured", hint="run with --capture op"
            )
    align = choose_align(baseline.manifest, target.manifest, align)
    require_tolerance(baseline.manifest, target.manifest, align, tolerance)
    if verify:
        for done, bundle in enumerate((baseline, target)):
            progress(f"verifying {bundle.path}", done, 2)
            bundle.verify()
    skip = unalignable(baseline.manifest, target.manifest, tolerance)
    judge = Judge(baseline, target, tolerance)
    if align == "step":
        aligned = _by_step(baseline, target, skip, judge, progress)
    else:
        aligned = _by_position(baseline, target, skip, judge, progress)
    compared = aligned.num_identical + sum(
        judged.verdict is not Verdict.INCOMPARABLE for judged in aligned.judged
    )
    if compared == 0:
        raise _nothing_compared(aligned)
    found = _conclude(baseline, target, align, tolerance, aligned, judge, compared)
    return replace(found, verified=verify)


def _check_tolerance(tolerance: Tolerance | None) -> None:
    if tolerance is None:
        return
    for name, value in (
        ("atol", tolerance.atol),
        ("rtol", tolerance.rtol),
        ("max_ulp", tolerance.max_ulp),
    ):
        if value is not None and not (isfinite(value) and value >= 0):
            raise UsageError(f"{name} must be finite and not negative, not {value}")


def _by_step(
    baseline: Bundle, target: Bundle, skip: frozenset[str], judge: Judge, progress: Progress
) -> _Aligned:
    alignment = align_steps(baseline, target, skip=skip)
    identical: list[TensorRecord] = []
    judged: list[Judged] = []
    total = len(alignment.pairs)
    for done, pair in enumerate(alignment.pairs):
        found = judge.by_step(*pair)
        if found is None:
            identical.append(pair[0])
            continue
        judged.append(found)
        progress("comparing boundaries", done, total)
    return _Aligned(
        num_identical=len(identical),
        identical=identical,
        judged=judged,
        only_baseline=alignment.only_baseline,
        only_target=alignment.only_target,
        skipped=alignment.skipped,
    )


def _by_position(
    baseline: Bundle, target: Bundle, skip: frozenset[str], judge: Judge, progress: Progress
) -> _Aligned:
    for bundle in (baseline, target):
        if bundle.num_stored == 0:
            raise IncomparableError(
                f"{bundle.path} has digests only; rows are joined from stored tensors",
                hint="run again with --store tensor",
            )
    alignment = align_positions(baseline, target, skip=skip)
    identical: list[TensorRecord] = []
    judged: list[Judged] = []
    steadiness = Steadiness(baseline, target, alignment.joined)
    for done, joined in enumerate(alignment.joined):
        progress("comparing rows", done, len(alignment.joined))
        found = steadiness.judge(joined, judge.by_rows(joined))
        if found is None:
            identical += (part.baseline for part in joined.overlaps)
        else:
            judged.append(found)
    judged.sort(key=lambda item: item.baseline.index)
    return _Aligned(
        num_identical=len(alignment.joined) - len(judged),
        identical=identical,
        judged=judged,
        only_baseline=alignment.only_baseline,
        only_target=alignment.only_target,
        skipped=alignment.skipped,
        whole=tuple(
            record for joined in alignment.joined for record in whole_records(joined.overlaps)
        ),
        rereads=steadiness.checked,
        unsteady=steadiness.unsteady,
    )


def _nothing_compared(aligned: _Aligned) -> IncomparableError:
    if aligned.judged:
        reason = aligned.judged[0].reason or "unknown"
        return IncomparableError(
            f"none of {len(aligned.judged)} boundaries can be judged: {reason}"
        )
    num_baseline, num_target = len(aligned.only_baseline), len(aligned.only_target)
    return IncomparableError(
        "nothing to compare: no boundary is in both bundles"
        f" ({num_baseline} only in the baseline, {num_target} only in the target)",
        hint="capture the same points, layers and steps in both runs",
    )


def _conclude(
    baseline: Bundle,
    target: Bundle,
    align: Align,
    tolerance: Tolerance | None,
    aligned: _Aligned,
    judge: Judge,
    compared: int,
) -> Divergence:
    diverged = [item for item in aligned.judged if item.verdict is Verdict.DIVERGED]
    inputs = find_inputs(
        baseline.manifest,
        align=align,
        identical=aligned.identical,
        judged=aligned.judged,
        whole=aligned.whole,
        ignored=intended(baseline.manifest, target.manifest, tolerance)
        | (lacking(baseline.manifest, baseline.records) & lacking(target.manifest, target.records)),
    )
    opened = _open_answer(diverged, inputs, judge)
    names, target_names = shown_names(baseline.records), shown_names(target.records)
    shown = {
        id(item): _boundary(opened.get(id(item), item), _origin(item, inputs), names)
        for item in aligned.judged
    }
    first = diverged[0] if diverged else None
    state, value = _earliest(diverged, PointKind.STATE), _earliest(diverged, PointKind.VALUE)
    other_tokens = tokens_differ(baseline.manifest, target.manifest)
    exact = _is_exact(aligned, first, inputs)
    return Divergence(
        baseline=str(baseline.path),
        target=str(target.path),
        align=align,
        tolerance=tolerance,
        verdict=_verdict(aligned.judged, other_tokens),
        compared=compared,
        tensors_opened=judge.tensors_opened,
        boundaries=tuple(shown.values()),
        last_identical=_last_identical(aligned.identical, first, names),
        first=shown[id(first)] if first else None,
        first_state=shown[id(state)] if state else None,
        first_value=shown[id(value)] if value else None,
        exact=exact,
        exact_state=exact and _is_exact(aligned, state, inputs, kinds=(PointKind.STATE,)),
        exact_value=exact and _is_exact(aligned, value, inputs, kinds=(PointKind.VALUE,)),
        only_baseline=_one_sided(aligned.only_baseline, names),
        only_target=_one_sided(aligned.only_target, target_names),
        tokens_differ=other_tokens,
        skipped=aligned.skipped,
        patterns=_patterns(baseline, target, value or first, shown),
        differences=differences(baseline.manifest, target.manifest),
        several_sessions=several_sessions(baseline.manifest, target.manifest),
        last_step=_last_step(baseline, target) if align == "step" else None,
        rereads=aligned.rereads,
        unsteady=tuple(names[record.index] for record in aligned.unsteady),
    )


def _patterns(
    baseline: Bundle, target: Bundle, item: Judged | None, shown: dict[int, BoundaryDiff]
) -> tuple[str, ...]:
    """Look at the rows of one boundary that were found to differ."""
    numbers = None if item is None else shown[id(item)].numbers
    if item is None or numbers is None or item.verdict is not Verdict.DIVERGED:
        return ()
    off = Off(
        point=item.baseline.point,
        layer=item.baseline.layer,
        session=item.baseline.session,
        positions=numbers.positions,
        heads=numbers.heads,
        num_heads=numbers.num_heads,
    )
    return patterns(baseline, target, off)


def _last_step(baseline: Bundle, target: Bundle) -> int | None:
    """Return the last step that both runs have, where one of them goes further."""
    left, right = baseline.manifest, target.manifest
    return None if len(left.steps) == len(right.steps) else last_common_step(left, right)


def _earliest(diverged: Sequence[Judged], kind: PointKind) -> Judged | None:
    return next((item for item in diverged if item.baseline.kind is kind), None)


def _verdict(judged: Sequence[Judged], tokens_differ: bool) -> Verdict:
    verdicts = {item.verdict for item in judged}
    if Verdict.DIVERGED in verdicts or tokens_differ:
        return Verdict.DIVERGED
    # What could not be judged must not read as a pass.
    for verdict in (Verdict.INCOMPARABLE, Verdict.WITHIN_TOLERANCE):
        if verdict in verdicts:
            return verdict
    return Verdict.IDENTICAL


def _open_answer(
    diverged: list[Judged], inputs: dict[int, Inputs], judge: Judge
) -> dict[int, Judged]:
    """Give numbers to the boundaries that carry the answer and have none yet."""
    milestones = (
        *diverged[:1],
        _earliest(diverged, PointKind.STATE),
        _earliest(diverged, PointKind.VALUE),
        *[item for item in diverged if not inputs[id(item)].differ][:MAX_SOURCES],
    )
    wanted = {id(item): item for item in milestones if item is not None}
    return {
        key: replace(item, numbers=judge.numbers(item.baseline, item.target))
        for key, item in wanted.items()
        if item.numbers is None
        and item.reason is None
        and judge.can_open(item.baseline, item.target)
    }


def _origin(item: Judged, inputs: dict[int, Inputs]) -> Origin | None:
    return origin_of(inputs[id(item)]) if id(item) in inputs else None


def _boundary(item: Judged, origin: Origin | None, names: Sequence[str]) -> BoundaryDiff:
    record = item.baseline
    return BoundaryDiff(
        step=record.step,
        stage=record.stage,
        session=record.session,
        name=names[record.index],
        layer=record.layer,
        kind=record.kind,
        verdict=item.verdict,
        origin=origin,
        reason=item.reason,
        numbers=item.numbers,
        reread_at=item.target.step if item.reread else None,
    )


def _last_identical(
    identical: list[TensorRecord], first: Judged | None, names: Sequence[str]
) -> BoundaryDiff | None:
    if first is None:
        return None
    before = [record for record in identical if record.index < first.baseline.index]
    if not before:
        return None
    last = max(before, key=lambda record: record.index)
    return _boundary(Judged(baseline=last, target=last, verdict=Verdict.IDENTICAL), None, names)


def _is_exact(
    aligned: _Aligned,
    found: Judged | None,
    inputs: dict[int, Inputs],
    *,
    kinds: Collection[PointKind] = tuple(PointKind),
) -> bool:
    """Return whether nothing of these kinds that may diverge before ``found`` was left out."""
    one_sided = (*aligned.only_baseline, *aligned.only_target)
    if found is None:
        return not any(missing.record.kind in kinds for missing in one_sided)
    if any(kind in inputs[id(found)].unseen for kind in kinds):
        return False
    refused = [item for item in aligned.judged if item.verdict is Verdict.INCOMPARABLE]
    before = (
        *(one.record for one in aligned.only_baseline if _before(one.record, found.baseline)),
        *(one.record for one in aligned.only_target if _before(one.record, found.target)),
        *(item.baseline for item in refused if _before(item.baseline, found.baseline)),
    )
    return not any(record.kind in kinds for record in before)


def _before(record: TensorRecord, other: TensorRecord) -> bool:
    return record.index < other.index


def _one_sided(missing: Iterable[Missing], names: Sequence[str]) -> tuple[OneSided, ...]:
    return tuple(
        OneSided(
            step=one.record.step,
            session=one.record.session,
            name=names[one.record.index],
            positions=one.positions,
        )
        for one in missing
    )
