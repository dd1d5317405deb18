"""Which positions the rows of a store or a gather are of, as owner keys."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from swarepro.ownership.keys import owner_keys
from swarepro.plan import Span
from swarepro.runtime.parts import AttentionCall, Request

RowDigests = Callable[[torch.Tensor], torch.Tensor]
"""Maps rows ``[N, 2, K, D]`` to ``[N]`` int64, on their device."""


def span_keys(spans: Sequence[Span]) -> torch.Tensor:
    """Return the keys ``[T]`` int64 of the spans' positions, span after span."""
    return torch.cat([owner_keys(span.session, span.start, span.end) for span in spans])


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleRows:
    """The rows of the pool that an attention call reads.

    Attributes:
        entries: ``[N]`` int64: which of the call's slots.
        keys: ``[N]`` int64: of the positions that have to lie there.
    """

    entries: torch.Tensor
    keys: torch.Tensor


def visible_rows(call: AttentionCall, *, reads_own: Sequence[bool]) -> VisibleRows:
    """Return the rows that some query of a call sees and reads from the pool.

    Args:
        call: its slots are not looked at.
        reads_own: for each request whether its own rows are read from the pool, too.
    """
    entries = [torch.empty(0, dtype=torch.int64)]
    keys = [torch.empty(0, dtype=torch.int64)]
    for request, own in zip(call.requests, reads_own, strict=True):
        start, end = _visible(request, call.window_left, own)
        offset = request.entries.start - request.visible_start
        if start >= end or offset + end > call.slots.numel():
            continue
        entries.append(torch.arange(offset + start, offset + end))
        keys.append(owner_keys(request.span.session, start, end))
    return VisibleRows(entries=torch.cat(entries), keys=torch.cat(keys))


def _visible(request: Request, window_left: int | None, reads_own: bool) -> tuple[int, int]:
    """Return the positions ``[start, end)`` that the mask lets a query of a request see."""
    span = request.span
    start = request.visible_start
    if window_left is not None:
        start = max(start, span.start - window_left)
    return start, span.end if reads_own else span.start
