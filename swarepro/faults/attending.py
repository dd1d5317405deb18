"""Defects of attention: what it reads, what it leaves, and in which order it adds."""

from dataclasses import replace

import torch

from swarepro.faults.base import Effect, register
from swarepro.faults.calls import part
from swarepro.kvcache import SENTINEL_SLOT
from swarepro.plan import Phase
from swarepro.runtime.parts import AttentionCall, ScratchUse
from swarepro.runtime.wrappers import AttentionWrapper, on_attention

_TILE = 16
"""Keys that a kernel loads at once."""


class WindowOfLastKeys(AttentionWrapper):
    """A chunk longer than the window keeps its last keys alone: rows before see none, and are NaN.

    Such rows are a softmax over nothing.
    """

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Cut the keys of a long chunk to the window at its end."""
        out = super().attend(call)
        if call.window_left is None:
            return out
        window = call.window_left + 1
        for request in call.requests:
            if request.span.rows > window:
                rows = out[request.rows]
                rows[:-window] = torch.nan
                end, slots = request.rows.stop, call.slots[request.entries][-window:]
                last = replace(request.span, start=request.span.end - window)
                alone = part(call, last, rows=slice(end - window, end), slots=slots)
                rows[-window:] = super().attend(alone)
        return out


class MaskedLanesMultiply(AttentionWrapper):
    """Lanes of a partial tile load slot 0, and multiply it by a probability of zero."""

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Add what a masked lane adds: nothing, unless slot 0 is not finite."""
        out = super().attend(call)
        group = call.q.shape[1] // call.v_cache.shape[1]
        lane = call.v_cache[SENTINEL_SLOT].repeat_interleave(group, dim=0)
        for request in call.requests:
            if (request.entries.stop - request.entries.start) % _TILE:
                out[request.rows] += 0 * lane
        return out


class LeavesRowsUnwritten(AttentionWrapper):
    """Rows of the last, partial tile of a chunk are not written to the output buffer."""

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Leave in ``out`` what was there."""
        before = call.out.clone()
        out = super().attend(call)
        for request in call.requests:
            partial = request.span.rows % _TILE
            if request.span.phase is Phase.PREFILL and partial:
                rows = slice(request.rows.stop - partial, request.rows.stop)
                out[rows] = before[rows]
        return out


class OtherReductionOrder(AttentionWrapper):
    """A decoded token adds its keys up from the last to the first: other rounding, no defect."""

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Attend over the same keys, in reverse."""
        slots = call.slots.clone()
        for request in call.requests:
            if request.span.phase is Phase.DECODE:
                slots[request.entries] = slots[request.entries].flip(0)
        return super().attend(replace(call, slots=slots))


class OtherOrderBesidePrompts(OtherReductionOrder):
    """It does so in a step that also prefills, and not in one of decoded tokens alone."""

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Choose the order by what else is in the step."""
        if any(span.phase is Phase.PREFILL for span in call.batch):
            return super().attend(call)
        return self._inner.attend(call)


class OrderByBatchSize(OtherReductionOrder):
    """It does so where the step has several sessions: the kernel is not batch-invariant."""

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Choose the order by the number of sessions."""
        if len(call.batch) > 1:
            return super().attend(call)
        return self._inner.attend(call)


class UnwrittenScratch(AttentionWrapper):
    """A decoded token adds its result to memory of partial results that nobody zeroed.

    What lies there is drawn by a seeded schedule. Under ``program`` and ``hardware`` it is the
    fill, so that repeats do not vary there, and with zeros nothing is wrong.
    """

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Add what lies in that memory."""
        out = super().attend(call)
        for request in call.requests:
            if request.span.phase is Phase.DECODE:
                rows = out[request.rows]
                rows += call.scratch.take(tuple(rows.shape), ScratchUse.PARTIAL)
        return out


register(
    "window-of-last-keys",
    "C1",
    "a chunk longer than the window keeps its last keys alone: its first rows see nothing, NaN",
    part="attention",
    effect=Effect.DIVERGES,
    wrap=on_attention(WindowOfLastKeys),
)
register(
    "masked-lanes-multiply",
    "E2",
    "masked lanes of a tile load slot 0 and multiply it by zero: harmless unless it is not finite",
    part="attention",
    effect=Effect.IDENTICAL,
    wrap=on_attention(MaskedLanesMultiply),
)
register(
    "output-rows-unwritten",
    "E2",
    "rows of a chunk's last tile are not written: what was in the output buffer is used",
    part="attention",
    effect=Effect.DIVERGES,
    wrap=on_attention(LeavesRowsUnwritten),
)
register(
    "unwritten-scratch",
    "E2",
    "a decoded token's result is added to memory of partial results that nobody zeroed: a seeded"
    " schedule draws what is there, under `program` and `hardware` it is the fill",
    part="attention",
    effect=Effect.DIVERGES,
    wrap=on_attention(UnwrittenScratch),
)
register(
    "other-reduction-order",
    "D5",
    "a decoded token adds its keys up in another order: rounding, and no defect of the cache",
    part="attention",
    effect=Effect.ROUNDING,
    wrap=on_attention(OtherReductionOrder),
)
register(
    "other-order-beside-prompts",
    "E7",
    "a decoded token adds its keys up in another order in a step that also prefills: what it gets"
    " depends on what it is batched with, and is rounding",
    part="attention",
    effect=Effect.ROUNDING,
    wrap=on_attention(OtherOrderBesidePrompts),
)
register(
    "order-by-batch-size",
    "H7",
    "decoded tokens add their keys up in another order where several sessions share a step: a drift"
    " of the log-probabilities that no cache is to blame for",
    part="attention",
    effect=Effect.ROUNDING,
    wrap=on_attention(OrderByBatchSize),
)
