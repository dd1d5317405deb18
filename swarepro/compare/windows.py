"""Rows of two bundles, a window at a time, so that no tensor is ever in memory whole."""

from collections.abc import Iterator

import numpy as np

from swarepro.bundle.dtypes import tensor_bytes
from swarepro.bundle.read import WINDOW_BYTES, Bundle
from swarepro.compare.floats import Array
from swarepro.compare.rows import Overlap

_CACHED_BYTES = 1 << 18


def windows(baseline: Bundle, target: Bundle, part: Overlap) -> Iterator[tuple[int, Array, Array]]:
    """Yield pieces of ``part``: the place of the first row in it, and both sides' rows."""
    widest = max(
        tensor_bytes(record.dtype, record.shape[1:]) for record in (part.baseline, part.target)
    )
    height = max(1, WINDOW_BYTES // max(1, widest))
    for start in range(0, part.num_rows, height):
        stop = min(start + height, part.num_rows)
        yield (
            start,
            baseline.rows(part.baseline, part.baseline_row + start, part.baseline_row + stop),
            target.rows(part.target, part.target_row + start, part.target_row + stop),
        )


def cached(mine: Array, theirs: Array) -> Iterator[slice]:
    """Yield slices of rows that stay in the processor's cache from one reading to the next."""
    widest = max(rows.nbytes // max(1, len(rows)) for rows in (mine, theirs))
    height = max(1, _CACHED_BYTES // max(1, widest))
    for start in range(0, len(mine), height):
        yield slice(start, min(start + height, len(mine)))


def words(rows: Array) -> Array:
    """Return the bytes of contiguous ``rows``, in words as wide as fit: they compare fastest."""
    flat = rows.reshape(-1).view(np.uint8)
    return flat.view(np.uint64) if flat.nbytes % 8 == 0 else flat
