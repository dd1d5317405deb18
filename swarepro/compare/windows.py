"""Rows of two bundles, a window at a time, so that no tensor is ever in memory whole."""

from collections.abc import Iterator

from swarepro.bundle.dtypes import tensor_bytes
from swarepro.bundle.read import WINDOW_BYTES, Bundle
from swarepro.compare.floats import Array
from swarepro.compare.rows import Overlap


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
