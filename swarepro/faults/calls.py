"""Attention calls cut anew: fewer keys, or one request's rows alone. No fault is here."""

from collections.abc import Callable
from dataclasses import replace

import torch

from swarepro.plan import Span
from swarepro.runtime.parts import AttentionCall, Request


def part(
    call: AttentionCall,
    span: Span,
    *,
    rows: slice,
    slots: torch.Tensor,
    own: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> AttentionCall:
    """Return the call that computes some rows of ``call`` alone, over keys of its own.

    Args:
        call: whose pools, scale and window are used.
        span: whose rows they are said to be; its end is one more than the last key's position.
        rows: of q, as many as the span has.
        slots: ``[N]`` of the keys, those of the span's own rows last.
        own: k and v ``[T, K, D]`` of the span's rows; None = those of ``rows``.
    """
    k, v = (call.k[rows], call.v[rows]) if own is None else own
    request = Request(
        span=span,
        rows=slice(0, span.rows),
        entries=slice(0, slots.numel()),
        visible_start=span.end - slots.numel(),
    )
    return replace(
        call,
        q=call.q[rows],
        k=k,
        v=v,
        slots=slots,
        requests=(request,),
        ahead=None if call.ahead is None else call.ahead[rows],
        out=torch.empty_like(call.out[rows]),
    )


def seen_from(call: AttentionCall, first: Callable[[Request], int]) -> AttentionCall:
    """Return the call whose requests see no key before the position that ``first`` gives.

    A request's own rows stay, and what it did not see before.
    """
    requests, slots, at = [], [], 0
    for request in call.requests:
        start = max(request.visible_start, min(first(request), request.span.start))
        kept = call.slots[request.entries][start - request.visible_start :]
        entries = slice(at, at + kept.numel())
        requests.append(replace(request, entries=entries, visible_start=start))
        slots.append(kept)
        at = entries.stop
    return replace(call, slots=torch.cat(slots), requests=tuple(requests))
