"""Which boundary of one run belongs to which of the other. Works on records; opens no tensor.

By step: the same (step, name, session, rank). By position: rows of all steps joined by (session,
logical position), for points whose rows are positions; a KV slice counts at each row's first write,
or where a session that took it over shows it first. What crosses a stage edge is matched by the
layer at the edge, so that stage splits may differ.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from swarepro import points
from swarepro.bundle.read import Bundle
from swarepro.bundle.schema import Manifest, TensorRecord
from swarepro.compare.names import told_apart
from swarepro.compare.rows import (
    Missing,
    Overlap,
    Segment,
    first_appearances,
    missing,
    overlaps,
)
from swarepro.compare.steps import (
    first_differing_step,
    last_common_step,
    same_spans,
    same_steps,
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
    """One boundary of one session over all its steps: the rows of both sides, by position."""

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

    A run that was stopped has the steps of the other as far as it went.

    Raises:
        IncomparableError: ``step`` was asked for and the steps differ; it names the first one.
    """
    differing = first_differing_step(baseline, target, common=True)
    if align == "step" and differing is not None:
        raise IncomparableError(
            f"the runs have different steps, first at {differing}",
            hint="align by position: --align position"
            + (" with --atol/--rtol or --max-ulp" if _other_bytes(baseline, target) else ""),
        )
    return align or ("step" if differing is None else "position")


def require_tolerance(
    baseline: Manifest, target: Manifest, align: Align, tolerance: Tolerance | None
) -> None:
    """Raise IncomparableError where bytes cannot be expected to agree and no tolerance is given.

    Other chunks round otherwise. The same chunks in other batches need no tolerance on the eager
    route: it promises each session the bytes that it has alone, whatever runs beside it.
    """
    if tolerance is not None:
        return
    reasons = [
        f"{what} {left} against {right}"
        for what, left, right in (
            ("engine", baseline.backend.engine, target.backend.engine),
            ("dtype", baseline.backend.dtype, target.backend.dtype),
            ("device", baseline.backend.device, target.backend.device),
            ("route", baseline.backend.route, target.backend.route),
            ("triton", baseline.backend.triton, target.backend.triton),
        )
        if left != right
    ]
    other_bytes = _other_bytes(baseline, target) if align == "position" else None
    if other_bytes is not None:
        reasons.insert(0, other_bytes)
    if reasons:
        raise IncomparableError(
            f"these runs need a tolerance: {'; '.join(reasons)}",
            hint="give --atol and --rtol, or --max-ulp; or measure what rounding does (`swarepro"
            " calibrate`) and give --floor",
        )


def _other_bytes(baseline: Manifest, target: Manifest) -> str | None:
    """Say why the steps of the two runs need not give the same bytes; None where they have to."""
    if same_steps(baseline, target):
        return None
    if not same_spans(baseline, target):
        return "the chunking differs"
    if not all(run.backend.route.startswith("eager") for run in (baseline, target)):
        return "the batches differ, and only the eager routes give the same bytes in each"
    return None


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
    """Return the points that differ by intent: other engines or routes, with a tolerance.

    Which slots a position has, and what lay there before it, is an engine's own affair; the
    reference has none at all.
    """
    if tolerance is None:
        return frozenset()
    if baseline.backend.engine != target.backend.engine:
        return points.OF_AN_ENGINE
    chosen = [
        (manifest.backend.route, manifest.backend.device, manifest.backend.triton)
        for manifest in (baseline, target)
    ]
    return frozenset((points.ROUTE.name,)) if chosen[0] != chosen[1] else frozenset()


def align_steps(
    baseline: Bundle, target: Bundle, *, skip: frozenset[str] = frozenset()
) -> StepAlignment:
    """Match records by (step, name, session, rank of them); the order of spans does not matter.

    Layer ids in names are global, so a chain of stages matches a single stage at every boundary
    that both have; what only the chain has (sends, receives, copies of metadata) is one-sided.
    Steps that only one run has are left out.

    Args:
        baseline: one run.
        target: the other.
        skip: names of declared points to leave out.
    """
    last = last_common_step(baseline.manifest, target.manifest)
    partners = {
        (record.step, record.name, record.session, which): record
        for record, which in told_apart(target.manifest.stages, target.records)
        if record.step <= last
    }
    pairs: list[tuple[TensorRecord, TensorRecord]] = []
    only_baseline: list[TensorRecord] = []
    skipped: set[str] = set()
    for record, which in told_apart(baseline.manifest.stages, baseline.records):
        if record.step > last:
            break
        partner = partners.pop((record.step, record.name, record.session, which), None)
        if record.point in skip:
            skipped.add(record.point)
        elif partner is None:
            only_baseline.append(record)
        else:
            pairs.append((record, partner))
    only_target = [record for record in partners.values() if record.point not in skip]
    skipped.update(record.point for record in partners.values() if record.point in skip)
    return StepAlignment(
        pairs=tuple(pairs),
        only_baseline=tuple(Missing(record=record) for record in only_baseline),
        only_target=tuple(Missing(record=record) for record in only_target),
        skipped=_in_order(skipped),
    )


def align_positions(
    baseline: Bundle, target: Bundle, *, skip: frozenset[str] = frozenset()
) -> PositionAlignment:
    """Join rows by (session, name, rank, position); see `align_steps`."""
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
    for record, which in told_apart(bundle.manifest.stages, bundle.records):
        if record.point in skip or not _has_positions(record):
            skipped.add(record.point)
            continue
        place = (record.session, record.name, which)
        grouped.setdefault(place, []).append(record)
    return {place: first_appearances(group) for place, group in grouped.items()}


def _has_positions(record: TensorRecord) -> bool:
    if record.row_start is None or not record.dims:
        return False
    return record.dims[0] in ("T", "1") or record.point == points.KV_SLICE_POST_WRITE.name


def _in_order(names: Iterable[str]) -> tuple[str, ...]:
    wanted = set(names)
    return tuple(point.name for point in points.ALL if point.name in wanted)
