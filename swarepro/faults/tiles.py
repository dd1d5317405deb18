"""Defects of one tile, or of one head of one row."""

import torch

from swarepro.faults.base import Effect, register
from swarepro.faults.calls import part
from swarepro.plan import Phase
from swarepro.runtime.parts import AttentionCall
from swarepro.runtime.wrappers import AttentionWrapper, on_attention

_TILE = 16
"""Queries, and keys, that a kernel computes at once."""


class FirstQueryTile(AttentionWrapper):
    """The first tile of a chunk's queries begins at the second tile of its window's keys."""

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Compute the first rows without the first keys."""
        out = super().attend(call)
        for request in call.requests:
            prefix = request.span.start - request.visible_start
            if call.window_left is None or request.span.phase is Phase.DECODE or prefix < _TILE:
                continue
            count = min(_TILE, request.span.rows)
            rows = slice(request.rows.start, request.rows.start + count)
            # All rows are computed: those of an image see keys behind the tile.
            slots = call.slots[request.entries][_TILE:]
            whole = part(call, request.span, rows=request.rows, slots=slots)
            out[rows] = super().attend(whole)[:count]
        return out


class HeadOfLastRow(AttentionWrapper):
    """The last head of a long prompt's last row holds what the head before it gave."""

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Put one head over another, in one row."""
        out = super().attend(call)
        for request in call.requests:
            span = request.span
            if call.window_left is None or span.phase is Phase.DECODE:
                continue
            if span.end > call.window_left + 1:
                last = out[request.rows.stop - 1]
                last[-1] = last[-2]
        return out


register(
    "first-query-tile",
    "B6",
    "the first tile of a chunk's queries skips the first tile of their window's keys",
    part="attention",
    effect=Effect.DIVERGES,
    wrap=on_attention(FirstQueryTile),
)
register(
    "head-of-last-row",
    "B6",
    "one head of one row is wrong where a prompt is longer than the window",
    part="attention",
    effect=Effect.DIVERGES,
    wrap=on_attention(HeadOfLastRow),
)
