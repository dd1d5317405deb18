"""Which boundary of one run belongs to which of the other. Works on records; opens no tensor.

By step: the same (step, name, occurrence). By position: rows of all steps joined by (session,
logical position), for points whose rows are positions; a KV slice counts at each row's first write.
What crosses a stage edge is matched by the layer at the edge, so that stage splits may differ.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from swarepro import points
from swarepro.bundle.read import Bundle
from swarepro.bundle.schema import Manifest, StepEntry, TensorRecord
from swarepro.compare.rows import (
    Missing,
    Overlap,
    Segment,
    first_appearances,
    missing,
    overlaps,
)
from swarepro.compare.types import Tolerance
from swarepro.errors import IncomparableError

Align = Literal["step", "position"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAlignment:
    """Boundaries matched by step.

    Attributes:
        pairs: baseline and target, in the baseline's execution order.
        only_baseline: boundaries without a partner.
        only_target: likewise.
        skipped: declared points left out.
    """

    pairs: tuple[tuple[TensorRecord, TensorRecord], ...]
    only_baseline: tuple[Missing, ...]
    only_target: tuple[Missing, ...]
    skipped: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedRows:
    """One boundary over all steps of a session: the rows that both sides have, by position."""

    overlaps: tuple[Overlap, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionAlignment:
    """Boundaries matched by position; see `StepAlignment`. What is one-sided are rows."""

    joined: tuple[JoinedRows, ...]
    only_baseline: tuple[Missing, ...]
    only_target: tuple[Missing, ...]
    skipped: tuple[str, ...]


def choose_align(baseline: Manifest, target: Manifest, align: Align | None) -> Align:
    """Return how to align: as asked, else by step when both runs have the same steps.

    Raises:
        IncomparableError: ``step`` was asked for and the steps differ; it names the first one.
    """
    differing = _first_differing_step(baseline.steps, target.steps)
    if align == "step" and differing is not None:
        raise IncomparableError(
            f"the runs have different steps, first at {differing}",
            hint="align by position: --align position with --atol/--rtol or --max-ulp",
        )
    return align or ("step" if differing is None else "position")


def _first_differing_step(
    baseline: tuple[StepEntry, ...], target: tuple[StepEntry, ...]
) -> str | None:
    for index in range(max(len(baseline), len(target))):
        left = baseline[index] if index < len(baseline) else None
        right = target[index] if index < len(target) else None
        if left != right:
            return f"step {index}: {_show(left)} against {_show(right)}"
    return None


def _show(step: StepEntry | None) -> str:
    if step is None:
        return "none"
    spans = ", ".join(f"session {span.session} rows {span.start}:{span.end}" for span in step.spans)
    return f"{step.phase} of {spans}" + (" after a reset" if step.reset else "")


def require_tolerance(
    baseline: Manifest, target: Manifest, align: Align, tolerance: Tolerance | None
) -> None:
    """Raise IncomparableError where bytes cannot be expected to agree and no tolerance is given."""
    if tolerance is not None:
        return
    reasons = [
        f"{what} {left} against {right}"
        for what, left, right in (
            ("dtype", baseline.backend.dtype, target.backend.dtype),
            ("device", baseline.backend.device, target.backend.device),
            ("route", baseline.backend.route, target.backend.route),
            ("triton", baseline.backend.triton, target.backend.triton),
        )
        if left != right
    ]
    if align == "position" and baseline.steps != target.steps:
        reasons.insert(0, "the chunking differs")
    if reasons:
        raise IncomparableError(
            f"these runs need a tolerance: {'; '.join(reasons)}",
            hint="give --atol and --rtol, or --max-ulp",
        )


def unalignable(
    baseline: Manifest, target: Manifest, tolerance: Tolerance | None
) -> frozenset[str]:
    """Return the points that say nothing about this pair of runs.

    ``route`` has one entry for each layer of a stage: it matches only between equal stage splits.
    """
    splits = [
        [(stage.layer_start, stage.layer_end) for stage in manifest.stages]
        for manifest in (baseline, target)
    ]
    layout = frozenset((points.ROUTE.name,)) if splits[0] != splits[1] else frozenset()
    return layout | intended(baseline, target, tolerance)


def intended(baseline: Manifest, target: Manifest, tolerance: Tolerance | None) -> frozenset[str]:
    """Return the points that differ by intent: other routes were chosen, with a tolerance."""
    chosen = [
        (manifest.backend.route, manifest.backend.device, manifest.backend.triton)
        for manifest in (baseline, target)
    ]
    if chosen[0] != chosen[1] and tolerance is not None:
        return frozenset((points.ROUTE.name,))
    return frozenset()


def align_steps(
    baseline: Bundle, target: Bundle, *, skip: frozenset[str] = frozenset()
) -> StepAlignment:
    """Match records by (step, name, occurrence).

    Layer ids in names are global, so a chain of stages matches a single stage at every boundary
    that both have; what only the chain has (sends, receives, copies of metadata) is one-sided.

    Args:
        baseline: one run.
        target: the other.
        skip: names of declared points to leave out.
    """
    edges, target_edges = _stage_edges(baseline), _stage_edges(target)
    partners = {
        (record.step, record.name, _which(record, target_edges)): record
        for record in target.records
    }
    pairs: list[tuple[TensorRecord, TensorRecord]] = []
    only_baseline: list[TensorRecord] = []
    skipped: set[str] = set()
    for record in baseline.records:
        partner = partners.pop((record.step, record.name, _which(record, edges)), None)
        if partner is None:
            only_baseline.append(record)
        elif record.point in skip:
            skipped.add(record.point)
        else:
            pairs.append((record, partner))
    return StepAlignment(
        pairs=tuple(pairs),
        only_baseline=tuple(Missing(record=record) for record in only_baseline),
        only_target=tuple(Missing(record=record) for record in partners.values()),
        skipped=_in_order(skipped),
    )


def align_positions(
    baseline: Bundle, target: Bundle, *, skip: frozenset[str] = frozenset()
) -> PositionAlignment:
    """Join rows by (session, name, occurrence, position); see `align_steps`."""
    skipped: set[str] = set()
    left, right = _segments(baseline, skip, skipped), _segments(target, skip, skipped)
    joined: list[JoinedRows] = []
    only_baseline: list[Missing] = []
    only_target: list[Missing] = []
    for place, segments in left.items():
        partners = right.pop(place, [])
        common = overlaps(segments, partners)
        if common:
            joined.append(JoinedRows(overlaps=common))
        only_baseline += missing(segments, partners)
        only_target += missing(partners, segments)
    for partners in right.values():
        only_target += missing(partners, [])
    return PositionAlignment(
        joined=tuple(joined),
        only_baseline=_in_execution_order(only_baseline),
        only_target=_in_execution_order(only_target),
        skipped=_in_order(skipped),
    )


def _in_execution_order(rows: list[Missing]) -> tuple[Missing, ...]:
    return tuple(sorted(rows, key=lambda item: item.record.index))


def _segments(
    bundle: Bundle, skip: frozenset[str], skipped: set[str]
) -> dict[tuple[int, str, int], list[Segment]]:
    grouped: dict[tuple[int, str, int], list[TensorRecord]] = {}
    edges = _stage_edges(bundle)
    for record in bundle.records:
        if record.point in skip or not _has_positions(record):
            skipped.add(record.point)
            continue
        place = (record.session, record.name, _which(record, edges))
        grouped.setdefault(place, []).append(record)
    return {place: first_appearances(group) for place, group in grouped.items()}


def _stage_edges(bundle: Bundle) -> dict[tuple[str, int], int]:
    """Return the layer at which each stage sends and receives."""
    send, receive = points.BOUNDARY_SEND_HIDDEN.name, points.BOUNDARY_RECV_HIDDEN.name
    edges = {(send, rank): stage.layer_end for rank, stage in enumerate(bundle.manifest.stages)}
    for rank, stage in enumerate(bundle.manifest.stages):
        edges[receive, rank] = stage.layer_start
    return edges


def _which(record: TensorRecord, edges: dict[tuple[str, int], int]) -> int:
    """Return what tells records of one name in one step apart."""
    return edges.get((record.point, record.stage), record.occurrence)


def _has_positions(record: TensorRecord) -> bool:
    if record.row_start is None or not record.dims:
        return False
    return record.dims[0] in ("T", "1") or record.point == points.KV_SLICE_POST_WRITE.name


def _in_order(names: Iterable[str]) -> tuple[str, ...]:
    wanted = set(names)
    return tuple(point.name for point in points.ALL if point.name in wanted)
