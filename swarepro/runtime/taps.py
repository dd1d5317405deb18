"""Hands the rows of a block to a tap, each span's by themselves."""

import torch

from swarepro.points import CapturePoint
from swarepro.runtime.batch import RowBlock
from swarepro.runtime.parts import Tap


def tap_rows(
    tap: Tap, point: CapturePoint, tensor: torch.Tensor, block: RowBlock, layer: int | None = None
) -> None:
    """Capture ``tensor [T, ...]``, the rows of ``block``."""
    if not tap.wants(point, layer):
        return
    for batch, rows in zip(block.spans, block.rows, strict=True):
        tap(
            point,
            tensor[rows],
            layer,
            session=batch.span.session,
            row_start=batch.span.start,
        )
