"""Heads: how wide they are in a fused projection, and which of them are off.

In a fused projection q, k and v lie one after another, heads of head_dim each. A record of such a
point does not say how wide a head is; other boundaries of the layer do.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from swarepro.bundle.schema import TensorRecord
from swarepro.points import HEAD_DIMS

FUSED = "Q"


def head_dims(*runs: Iterable[TensorRecord]) -> dict[int, int]:
    """Return head_dim by layer, as far as boundaries with heads say it and do not disagree.

    Args:
        runs: records of each of the runs that are compared.
    """
    found: dict[int, set[int]] = {}
    for records in runs:
        for record in records:
            has_heads = record.dims[-1:] == ("D",) and HEAD_DIMS.intersection(record.dims)
            if record.layer is not None and has_heads and record.shape[-1] > 0:
                found.setdefault(record.layer, set()).add(record.shape[-1])
    return {layer: widths.pop() for layer, widths in found.items() if len(widths) == 1}


def heads_with(
    dims: tuple[str, ...], shape: tuple[int, ...], bad: npt.NDArray[np.bool_]
) -> tuple[tuple[int, ...], int]:
    """Return which heads have a bad vector, and how many heads there are.

    Args:
        dims: of the point.
        shape: of its tensor.
        bad: ``[rows, vectors of a row]``.
    """
    axis = next((at for at, dim in enumerate(dims) if at and dim in HEAD_DIMS), None)
    if axis is None or axis == len(dims) - 1:
        return (), 0
    hits: npt.NDArray[np.bool_] = np.asarray(bad.any(axis=0)).reshape(shape[1:-1])
    by_head = np.moveaxis(hits, axis - 1, 0).reshape(shape[axis], -1)
    return tuple(np.flatnonzero(by_head.any(axis=1)).tolist()), shape[axis]
