"""Rows as intervals of logical positions: which record holds them, and where both sides do."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from swarepro.bundle.schema import TensorRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Rows ``[row, row + num_rows)`` of a record, at positions from ``position`` on."""

    record: TensorRecord
    row: int
    num_rows: int
    position: int

    @property
    def end(self) -> int:
        """First position after it."""
        return self.position + self.num_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Rows at the same positions on both sides."""

    baseline: TensorRecord
    baseline_row: int
    target: TensorRecord
    target_row: int
    num_rows: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What one side has and the other lacks.

    Attributes:
        record: the earliest that holds a part of it.
        positions: half-open; None = the whole boundary, where rows are not joined.
    """

    record: TensorRecord
    positions: tuple[int, int] | None = None


def end_of(record: TensorRecord) -> int:
    """Return the position after the last row of ``record``, whose rows are positions."""
    return (record.row_start or 0) + record.shape[0]


def part_at(parts: Sequence[Overlap], row: int) -> Overlap:
    """Return the part that holds joined row ``row``, counted over all parts from 0."""
    for part in parts:
        if row < part.num_rows:
            return part
        row -= part.num_rows
    raise IndexError(row)


def first_appearances(records: Iterable[TensorRecord]) -> list[Segment]:
    """Return each position's row in the earliest record that has it, by ascending position.

    Args:
        records: of one boundary in execution order, each with a ``row_start``.
    """
    segments: list[Segment] = []
    for record in records:
        start = record.row_start or 0
        gaps = _uncovered(segments, start, end_of(record))
        segments += [
            Segment(record=record, row=begin - start, num_rows=end - begin, position=begin)
            for begin, end in gaps
        ]
        segments.sort(key=lambda segment: segment.position)
    return segments


def _uncovered(segments: Sequence[Segment], start: int, end: int) -> list[tuple[int, int]]:
    """Return the parts of ``[start, end)`` that no segment (ascending, disjoint) covers."""
    gaps = []
    for segment in segments:
        if segment.end <= start:
            continue
        if segment.position >= end:
            break
        if segment.position > start:
            gaps.append((start, segment.position))
        start = segment.end
    if start < end:
        gaps.append((start, end))
    return gaps


def overlaps(baseline: Sequence[Segment], target: Sequence[Segment]) -> tuple[Overlap, ...]:
    """Return the common rows of two ascending, disjoint lists of segments, by position."""
    common: list[Overlap] = []
    left = right = 0
    while left < len(baseline) and right < len(target):
        b, t = baseline[left], target[right]
        start, end = max(b.position, t.position), min(b.end, t.end)
        if start < end:
            common.append(
                Overlap(
                    baseline=b.record,
                    baseline_row=b.row + start - b.position,
                    target=t.record,
                    target_row=t.row + start - t.position,
                    num_rows=end - start,
                    position=start,
                )
            )
        if b.end <= t.end:
            left += 1
        else:
            right += 1
    return tuple(common)


def missing(segments: Sequence[Segment], others: Sequence[Segment]) -> list[Missing]:
    """Return the positions of ``segments`` that ``others`` lack, each run of positions once."""
    runs: list[Missing] = []
    for segment in segments:
        for start, end in _uncovered(others, segment.position, segment.end):
            record = segment.record
            if runs and runs[-1].positions is not None and runs[-1].positions[1] == start:
                start = runs[-1].positions[0]
                record = min(runs.pop().record, record, key=lambda held: held.index)
            runs.append(Missing(record=record, positions=(start, end)))
    return runs


def whole_records(common: Sequence[Overlap]) -> list[TensorRecord]:
    """Return the baseline's records of which every row is compared, with whole records only.

    A row that a record repeats (a pool's row, after its first write) is not compared, and neither
    is one that the other side lacks: of such a record nobody knows whether it is equal.
    """
    rows: Counter[tuple[bool, int]] = Counter()
    for part in common:
        rows[False, part.baseline.index] += part.num_rows
        rows[True, part.target.index] += part.num_rows
    records = {part.baseline.index: part.baseline for part in common}
    partial = {
        part.baseline.index
        for part in common
        if rows[False, part.baseline.index] < part.baseline.shape[0]
        or rows[True, part.target.index] < part.target.shape[0]
    }
    return [record for index, record in records.items() if index not in partial]
