"""All rows of one boundary of one session, by position, whichever steps they come from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from swarepro.bundle.dtypes import DTYPES
from swarepro.bundle.schema import TensorRecord
from swarepro.compare.floats import Array, bits, to_float64
from swarepro.compare.rows import Segment

ReadRows = Callable[[TensorRecord, int, int], Array]
"""Return rows ``[start, stop)`` of a record, in its dtype's view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacked:
    """Rows by ascending position.

    Attributes:
        positions: ``[rows]``.
        rows: ``[rows, ...]``, in the view of ``dtype``.
        dtype: safetensors' name.
    """

    positions: npt.NDArray[np.int64]
    rows: Array
    dtype: str

    def at(self, positions: npt.NDArray[np.int64]) -> Array:
        """Return the rows at ``positions``, all of which are there."""
        return self.rows[np.searchsorted(self.positions, positions)]

    def values(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return them as numbers."""
        return to_float64(self.at(positions), DTYPES[self.dtype])


def stacked(segments: Sequence[Segment], read: ReadRows) -> Stacked:
    """Return the rows of ``segments``, of one boundary, ascending and not none.

    Args:
        segments: see `swarepro.compare.rows.first_appearances`.
        read: rows of their records.
    """
    return Stacked(
        positions=np.concatenate(
            [np.arange(segment.position, segment.end) for segment in segments]
        ),
        rows=np.concatenate(
            [
                read(segment.record, segment.row, segment.row + segment.num_rows)
                for segment in segments
            ]
        ),
        dtype=segments[0].record.dtype,
    )


def num_differing(one: Stacked, other: Stacked, positions: npt.NDArray[np.int64]) -> int:
    """Return how many values differ at ``positions``; all where shapes of rows do.

    Of one dtype they differ in their bits: NaN is equal to itself, and zeros have a sign. Of two
    they differ as numbers, NaN in one of them alone.
    """
    if one.rows.shape[1:] != other.rows.shape[1:]:
        return int(other.at(positions).size)
    if one.dtype == other.dtype:
        mine, theirs = (bits(side.at(positions), DTYPES[side.dtype]) for side in (one, other))
        return int((mine != theirs).sum())
    a, b = one.values(positions), other.values(positions)
    return int(((a != b) & ~(np.isnan(a) & np.isnan(b))).sum())
