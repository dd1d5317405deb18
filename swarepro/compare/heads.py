"""Heads in a fused projection: q, k and v lie one after another, heads of head_dim each.

A record of such a point does not say how wide a head is; other boundaries of the layer do.
"""

from collections.abc import Iterable

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
