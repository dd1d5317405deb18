"""Judges aligned boundaries: digests first, bytes where the digests leave a question open."""

from dataclasses import dataclass

import numpy as np

from swarepro.bundle.dtypes import DTYPES
from swarepro.bundle.read import Bundle
from swarepro.bundle.schema import TensorRecord
from swarepro.compare.align import JoinedRows
from swarepro.compare.heads import head_dims
from swarepro.compare.reading import Reading
from swarepro.compare.rows import Overlap, part_at
from swarepro.compare.tensor_diff import DiffAccumulator
from swarepro.compare.types import TensorDiff, Tolerance, Verdict
from swarepro.compare.windows import cached, windows, words

NOT_STORED = "digests differ, and a tolerance cannot judge digests: run with --store tensor"
OTHER_DIGESTS = "digests of two kinds say nothing about each other: run with --store tensor"
ROWS_NOT_STORED = "rows can only be joined from stored tensors: run with --store tensor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A boundary that is not identical.

    Attributes:
        baseline: the record that holds its first differing row.
        target: likewise.
        verdict: of the boundary.
        reason: see `swarepro.compare.types.BoundaryDiff`.
        numbers: None where no tensor was opened.
        reread: rows that an earlier step wrote are shown otherwise, in the target itself.
    """

    baseline: TensorRecord
    target: TensorRecord
    verdict: Verdict
    reason: str | None = None
    numbers: TensorDiff | None = None
    reread: bool = False


class Judge:
    """Opens what has to be opened of two bundles, and counts it.

    Args:
        baseline: one run.
        target: the other.
        tolerance: None = bitwise.
    """

    def __init__(self, baseline: Bundle, target: Bundle, tolerance: Tolerance | None) -> None:
        self._baseline = baseline
        self._target = target
        self._tolerance = tolerance
        self._head_dims = head_dims(baseline.records, target.records)
        self.tensors_opened = 0

    def by_step(self, baseline: TensorRecord, target: TensorRecord) -> Judged | None:
        """Judge one pair of whole tensors; None when it is identical.

        Bitwise, it opens none, unless the two digests are of two kinds.
        """
        same_type = baseline.dtype == target.dtype
        same_shape = baseline.shape == target.shape
        if same_type and same_shape:
            equal = self._same_bytes(baseline, target)
            if equal:
                return None
            if equal is None:
                return Judged(
                    baseline=baseline,
                    target=target,
                    verdict=Verdict.INCOMPARABLE,
                    reason=OTHER_DIGESTS,
                )
        reason = None
        if not same_shape:
            reason = f"shape {list(baseline.shape)} against {list(target.shape)}"
        elif not same_type and self._tolerance is None:
            reason = f"dtype {baseline.dtype} against {target.dtype}"
        if reason is not None or self._is_exact(baseline, target):
            return Judged(baseline=baseline, target=target, verdict=Verdict.DIVERGED, reason=reason)
        reason = self._cannot_tolerate(baseline, target)
        if reason is None and not self.can_open(baseline, target):
            reason = NOT_STORED
        if reason is not None:
            return Judged(
                baseline=baseline, target=target, verdict=Verdict.INCOMPARABLE, reason=reason
            )
        numbers = self.numbers(baseline, target)
        return Judged(
            baseline=baseline,
            target=target,
            verdict=Verdict.DIVERGED if numbers.num_mismatched else Verdict.WITHIN_TOLERANCE,
            numbers=numbers,
        )

    def _same_bytes(self, baseline: TensorRecord, target: TensorRecord) -> bool | None:
        """Return whether the bytes are equal; None where digests of two kinds cannot tell."""
        if baseline.algorithm == target.algorithm:
            return baseline.digest == target.digest
        if not self.can_open(baseline, target):
            return None
        self.tensors_opened += 2
        self._baseline.check(baseline)
        self._target.check(target)
        return self._baseline.digest(baseline, "xxh3_128") == self._target.digest(
            target, "xxh3_128"
        )

    def can_open(self, baseline: TensorRecord, target: TensorRecord) -> bool:
        """Return whether both sides are stored."""
        return baseline.file is not None and target.file is not None

    def numbers(self, baseline: TensorRecord, target: TensorRecord) -> TensorDiff:
        """Open both tensors (of one shape) and compare them."""
        self.tensors_opened += 2
        self._baseline.check(baseline)
        self._target.check(target)
        accumulator = self._accumulator(baseline, target, baseline.shape)
        positions = None
        if baseline.shape:
            num_rows = baseline.shape[0]
            whole = Overlap(
                baseline=baseline,
                baseline_row=0,
                target=target,
                target_row=0,
                num_rows=num_rows,
                position=0,
            )
            self._walk(accumulator, whole, row=0)
            if baseline.row_start is not None:
                positions = np.arange(num_rows) + baseline.row_start
        else:
            accumulator.add(self._baseline.tensor(baseline), self._target.tensor(target), row=0)
        return accumulator.finish(positions=positions)

    def _accumulator(
        self, baseline: TensorRecord, target: TensorRecord, shape: tuple[int, ...]
    ) -> DiffAccumulator:
        return DiffAccumulator(
            dtypes=(baseline.dtype, target.dtype),
            shape=shape,
            dims=baseline.dims,
            tolerance=self._tolerance,
            head_dim=None if baseline.layer is None else self._head_dims.get(baseline.layer),
        )

    def _walk(self, accumulator: DiffAccumulator, part: Overlap, *, row: int) -> None:
        """Add the rows of ``part`` as rows from ``row`` on, a window of each side at a time."""
        for start, mine, theirs in windows(self._baseline, self._target, part):
            accumulator.add(mine, theirs, row=row + start)

    def _is_exact(self, baseline: TensorRecord, target: TensorRecord) -> bool:
        """Return whether other digests already mean DIVERGED: bitwise, or integers."""
        if self._tolerance is None:
            return True
        return baseline.dtype == target.dtype and not DTYPES[baseline.dtype].is_float

    def _cannot_tolerate(self, baseline: TensorRecord, target: TensorRecord) -> str | None:
        tolerance = self._tolerance
        if tolerance is None or tolerance.max_ulp is None or baseline.dtype == target.dtype:
            return None
        if tolerance.atol or tolerance.rtol:
            return None
        return f"ULPs of {baseline.dtype} are not ULPs of {target.dtype}: give --atol and --rtol"

    def by_rows(self, joined: JoinedRows) -> Judged | None:
        """Judge joined rows; None when they are identical."""
        parts = joined.overlaps
        if all(_is_whole_and_equal(part) for part in parts):
            return None
        first = parts[0]
        reason = _contradiction(parts)
        if reason is not None:
            return _judged(first, Verdict.DIVERGED, reason)
        reason = self._cannot_tolerate(first.baseline, first.target)
        if reason is None and not all(self.can_open(part.baseline, part.target) for part in parts):
            reason = ROWS_NOT_STORED
        if reason is not None:
            return _judged(first, Verdict.INCOMPARABLE, reason)
        if self._same_rows(parts):
            return None
        numbers, identical = self._joined_numbers(parts)
        if identical:
            return None
        if not numbers.num_mismatched:
            return _judged(first, Verdict.WITHIN_TOLERANCE, None, numbers)
        at = part_at(parts, numbers.rows[0])
        return _judged(at, Verdict.DIVERGED, None, numbers)

    def _same_rows(self, parts: tuple[Overlap, ...]) -> bool:
        """Check every tensor that is opened; return whether all rows are equal byte for byte.

        No number is computed where they are.
        """
        same = parts[0].baseline.dtype == parts[0].target.dtype
        baseline, target = Reading(self._baseline), Reading(self._target)
        for part in parts:
            for start, mine, theirs in windows(self._baseline, self._target, part):
                for rows in cached(mine, theirs):
                    left, right, row = mine[rows], theirs[rows], start + rows.start
                    baseline.see(part.baseline, left, row=part.baseline_row + row)
                    target.see(part.target, right, row=part.target_row + row)
                    same = same and np.array_equal(words(left), words(right))
        self.tensors_opened += baseline.check() + target.check()
        return same

    def _joined_numbers(self, parts: tuple[Overlap, ...]) -> tuple[TensorDiff, bool]:
        first = parts[0]
        num_rows = sum(part.num_rows for part in parts)
        accumulator = self._accumulator(
            first.baseline, first.target, (num_rows, *first.baseline.shape[1:])
        )
        row = 0
        for part in parts:
            self._walk(accumulator, part, row=row)
            row += part.num_rows
        positions = np.concatenate(
            [np.arange(part.position, part.position + part.num_rows) for part in parts]
        )
        return accumulator.finish(positions=positions), accumulator.is_identical


def _judged(
    part: Overlap, verdict: Verdict, reason: str | None, numbers: TensorDiff | None = None
) -> Judged:
    return Judged(
        baseline=part.baseline,
        target=part.target,
        verdict=verdict,
        reason=reason,
        numbers=numbers,
    )


def _is_whole_and_equal(part: Overlap) -> bool:
    baseline, target = part.baseline, part.target
    return (
        part.num_rows == baseline.shape[0] == target.shape[0]
        and baseline.algorithm == target.algorithm
        and baseline.digest == target.digest
        and baseline.dtype == target.dtype
        and baseline.shape == target.shape
    )


def _contradiction(parts: tuple[Overlap, ...]) -> str | None:
    for side in ("baseline", "target"):
        kinds = {(getattr(part, side).dtype, getattr(part, side).shape[1:]) for part in parts}
        if len(kinds) > 1:
            return f"the {side}'s steps disagree about dtype or row shape"
    baseline, target = parts[0].baseline, parts[0].target
    if baseline.shape[1:] != target.shape[1:]:
        return f"rows of shape {list(baseline.shape[1:])} against {list(target.shape[1:])}"
    return None
