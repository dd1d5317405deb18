"""How an error grows from layer to layer: what came in, and what a layer added."""

from collections.abc import Mapping, Sequence
from math import sqrt

import numpy as np
import numpy.typing as npt

from swarepro import points
from swarepro.bundle.dtypes import DTYPES
from swarepro.bundle.read import Bundle
from swarepro.compare.assessment import LayerGrowth
from swarepro.compare.floats import Array, to_float64
from swarepro.compare.rows import Overlap
from swarepro.compare.windows import windows

_Values = npt.NDArray[np.float64]
Streams = Mapping[int, Sequence[Overlap]]
"""Rows of the residual stream behind each layer; -1 is what enters layer 0."""


def residual_streams(joined: Sequence[tuple[Overlap, ...]]) -> dict[int, list[Overlap]]:
    """Return the parts of all sessions that hold the residual stream, by the layer before them."""
    streams: dict[int, list[Overlap]] = {}
    for parts in joined:
        for part in parts:
            record = part.baseline
            if record.point == points.AFTER_LAYER.name and record.layer is not None:
                streams.setdefault(record.layer, []).append(part)
            elif record.point == points.EMBEDDING_OUTPUT.name:
                streams.setdefault(-1, []).append(part)
    return streams


def measure_growth(
    baseline: Bundle, target: Bundle, streams: Streams, floors: Mapping[int, float | None]
) -> tuple[LayerGrowth, ...]:
    """Return the growth over the layers whose stream is there and finite on both sides.

    Args:
        baseline: one run.
        target: the other.
        streams: rows by layer; their tensors have been checked.
        floors: relative L2 of legal variants, by layer.
    """
    found = []
    for layer in sorted(layer for layer in streams if layer >= 0):
        before = {_rows(part): part for part in streams.get(layer - 1, ())}
        stream, added = _Sums(), _Sums()
        whole = True
        for part in streams[layer]:
            entering = before.get(_rows(part))
            if entering is not None and _width(entering) != _width(part):
                entering = None  # nothing holds the embedding of a dump to the layers' width
            whole &= entering is not None
            for start, mine, theirs in windows(baseline, target, part):
                b, t = _values(part, mine, theirs)
                stream.add(b, t)
                if entering is not None:
                    b_in, t_in = _piece(baseline, target, entering, start, len(mine))
                    added.add(b - b_in, t - t_in)
        relative_l2 = stream.relative_l2
        if relative_l2 is not None:
            found.append(
                LayerGrowth(
                    layer=layer,
                    relative_l2=relative_l2,
                    cosine=stream.cosine,
                    added=added.relative_l2 if whole else None,
                    floor_l2=floors.get(layer),
                )
            )
    return tuple(found)


class _Sums:
    """Squares of two sides, of their difference, and their product."""

    def __init__(self) -> None:
        self._sums = np.zeros(4)

    def add(self, baseline: _Values, target: _Values) -> None:
        """Add the rows of both sides."""
        with np.errstate(invalid="ignore", over="ignore"):
            apart = target - baseline
            pairs = (baseline, baseline), (target, target), (baseline, target), (apart, apart)
            self._sums += [float((x * y).sum()) for x, y in pairs]

    @property
    def relative_l2(self) -> float | None:
        """Of the difference; None where it is not finite, or the baseline is 0."""
        if not np.isfinite(self._sums).all() or not self._sums[0]:
            return None
        return sqrt(self._sums[3] / self._sums[0])

    @property
    def cosine(self) -> float | None:
        """Of both sides; None where one is 0."""
        norms = self._sums[0] * self._sums[1]
        return float(self._sums[2] / sqrt(norms)) if norms else None


def _rows(part: Overlap) -> tuple[int, int, int]:
    return part.baseline.session, part.position, part.num_rows


def _width(part: Overlap) -> tuple[int, ...]:
    return part.baseline.shape[1:]


def _values(part: Overlap, mine: Array, theirs: Array) -> tuple[_Values, _Values]:
    types = DTYPES[part.baseline.dtype], DTYPES[part.target.dtype]
    return to_float64(mine, types[0]), to_float64(theirs, types[1])


def _piece(
    baseline: Bundle, target: Bundle, part: Overlap, start: int, num_rows: int
) -> tuple[_Values, _Values]:
    """Return ``num_rows`` rows of both sides from the place ``start`` in ``part`` on."""
    mine, theirs = part.baseline_row + start, part.target_row + start
    return _values(
        part,
        baseline.rows(part.baseline, mine, mine + num_rows),
        target.rows(part.target, theirs, theirs + num_rows),
    )
