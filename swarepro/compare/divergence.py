"""Compares two bundles: where they diverge first, what is a source, and what cannot be told."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal

from swarepro.bundle.read import Bundle
from swarepro.bundle.schema import Manifest, TensorRecord
from swarepro.compare.align import (
    Align,
    align_positions,
    align_steps,
    choose_align,
    require_tolerance,
    unalignable,
)
from swarepro.compare.judge import Judge, Judged
from swarepro.compare.origin import find_sources
from swarepro.compare.types import BoundaryDiff, Divergence, OneSided, Tolerance, Verdict
from swarepro.errors import IncomparableError, UsageError
from swarepro.points import PointKind

Progress = Callable[[str, int, int], None]
MAX_SOURCES = 8
"""Earliest sources of a bitwise comparison that get numbers; the rest is judged by digest."""


def _no_progress(what: str, done: int, total: int) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class _Aligned:
    """What either alignment comes down to.

    Attributes:
        num_identical: boundaries.
        identical: their baseline records (several a boundary when aligned by position).
        judged: all other boundaries, in execution order.
    """

    num_identical: int
    identical: list[TensorRecord]
    judged: list[Judged]
    only_baseline: tuple[TensorRecord, ...]
    only_target: tuple[TensorRecord, ...]
    skipped: tuple[str, ...]


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
        align: None = ``step`` when both ran the same steps, else ``position``.
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
    return _conclude(baseline, target, align, tolerance, aligned, judge, compared)


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
    for done, joined in enumerate(alignment.joined):
        progress("comparing rows", done, len(alignment.joined))
        found = judge.by_rows(joined)
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
    sources = find_sources(
        baseline.manifest, align=align, identical=aligned.identical, judged=aligned.judged
    )
    opened = _open_answer(diverged, sources, judge)
    shown = {
        id(item): _boundary(opened.get(id(item), item), _origin(item, sources))
        for item in aligned.judged
    }
    first = diverged[0] if diverged else None
    tokens_differ = _tokens_differ(baseline.manifest, target.manifest)

    def earliest(kind: PointKind) -> BoundaryDiff | None:
        found = (shown[id(item)] for item in diverged if item.baseline.kind is kind)
        return next(found, None)

    return Divergence(
        baseline=str(baseline.path),
        target=str(target.path),
        align=align,
        tolerance=tolerance,
        verdict=_verdict(aligned.judged, tokens_differ),
        compared=compared,
        tensors_opened=judge.tensors_opened,
        boundaries=tuple(shown.values()),
        last_identical=_last_identical(aligned.identical, first),
        first=shown[id(first)] if first else None,
        first_state=earliest(PointKind.STATE),
        first_value=earliest(PointKind.VALUE),
        exact=_is_exact(aligned, first),
        only_baseline=_one_sided(aligned.only_baseline),
        only_target=_one_sided(aligned.only_target),
        tokens_differ=tokens_differ,
        skipped=aligned.skipped,
    )


def _verdict(judged: Sequence[Judged], tokens_differ: bool) -> Verdict:
    verdicts = {item.verdict for item in judged}
    if Verdict.DIVERGED in verdicts or tokens_differ:
        return Verdict.DIVERGED
    # What could not be judged must not read as a pass.
    for verdict in (Verdict.INCOMPARABLE, Verdict.WITHIN_TOLERANCE):
        if verdict in verdicts:
            return verdict
    return Verdict.IDENTICAL


def _tokens_differ(baseline: Manifest, target: Manifest) -> bool:
    """Return whether a token that both runs generated at one position differs."""
    same_steps = baseline.steps == target.steps
    if same_steps:
        return baseline.tokens != target.tokens
    if baseline.prompts != target.prompts:
        return False
    return any(
        left != right
        for mine, theirs in zip(baseline.tokens, target.tokens, strict=False)
        for left, right in zip(mine, theirs, strict=False)
    )


def _open_answer(diverged: list[Judged], sources: set[int], judge: Judge) -> dict[int, Judged]:
    """Give numbers to the boundaries that carry the answer and have none yet."""
    wanted: dict[int, Judged] = {id(item): item for item in diverged[:1]}
    for kind in (PointKind.STATE, PointKind.VALUE):
        for item in diverged:
            if item.baseline.kind is kind:
                wanted[id(item)] = item
                break
    for item in [item for item in diverged if id(item) in sources][:MAX_SOURCES]:
        wanted[id(item)] = item
    return {
        key: replace(item, numbers=judge.numbers(item.baseline, item.target))
        for key, item in wanted.items()
        if item.numbers is None
        and item.reason is None
        and judge.can_open(item.baseline, item.target)
    }


def _origin(item: Judged, sources: set[int]) -> Literal["source", "inherited"] | None:
    if item.verdict is not Verdict.DIVERGED:
        return None
    return "source" if id(item) in sources else "inherited"


def _boundary(item: Judged, origin: Literal["source", "inherited"] | None) -> BoundaryDiff:
    record = item.baseline
    return BoundaryDiff(
        step=record.step,
        stage=record.stage,
        name=record.key,
        layer=record.layer,
        kind=record.kind,
        verdict=item.verdict,
        origin=origin,
        reason=item.reason,
        numbers=item.numbers,
    )


def _last_identical(identical: list[TensorRecord], first: Judged | None) -> BoundaryDiff | None:
    if first is None:
        return None
    before = [record for record in identical if record.index < first.baseline.index]
    if not before:
        return None
    last = max(before, key=lambda record: record.index)
    return _boundary(Judged(baseline=last, target=last, verdict=Verdict.IDENTICAL), None)


def _is_exact(aligned: _Aligned, first: Judged | None) -> bool:
    if first is None:
        return True
    return not (
        any(record.index < first.baseline.index for record in aligned.only_baseline)
        or any(record.index < first.target.index for record in aligned.only_target)
    )


def _one_sided(records: Iterable[TensorRecord]) -> tuple[OneSided, ...]:
    return tuple(OneSided(step=record.step, name=record.key) for record in records)
