"""Defects of the numbers in attention: scale, softcap, and which rows are the values."""

from dataclasses import replace

import torch

from swarepro.faults.base import Effect, register
from swarepro.faults.calls import part
from swarepro.kvcache import KVGroup
from swarepro.plan import Phase
from swarepro.runtime.parts import AttentionCall
from swarepro.runtime.wrappers import AttentionWrapper, on_attention


class ScaleFromHeadDim(AttentionWrapper):
    """Scores are scaled by the size of a head, not by what the model's config says."""

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Attend with another scale."""
        return super().attend(replace(call, scale=call.q.shape[-1] ** -0.5))


class SoftcapDropped(AttentionWrapper):
    """Scores are not capped."""

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Attend without the cap."""
        return super().attend(replace(call, softcap=None))


class SoftcapDroppedInDecode(AttentionWrapper):
    """Scores of decoded tokens are not capped: their kernel was never given the cap."""

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Compute decoded tokens once more, without the cap."""
        out = super().attend(call)
        for request in call.requests:
            if request.span.phase is Phase.DECODE:
                slots = call.slots[request.entries]
                token = part(call, request.span, rows=request.rows, slots=slots)
                out[request.rows] = super().attend(replace(token, softcap=None))
        return out


class ValuesAreKeys(AttentionWrapper):
    """A layer whose values are its keys' projection reads its keys as values.

    They were normed with weights and rotated since; values are not.
    """

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Attend to keys, and add keys up."""
        if call.group is KVGroup.FULL:
            call = replace(call, v=call.k, v_cache=call.k_cache)
        return super().attend(call)


register(
    "scale-from-head-dim",
    "F6",
    "attention scores are scaled by head_dim, not by query_pre_attn_scalar",
    part="attention",
    effect=Effect.DIVERGES,
    wrap=on_attention(ScaleFromHeadDim),
)
register(
    "attention-softcap-dropped",
    "F2",
    "attention scores are not capped",
    part="attention",
    effect=Effect.DIVERGES,
    wrap=on_attention(SoftcapDropped),
)
register(
    "attention-softcap-dropped-in-decode",
    "F2",
    "attention scores of decoded tokens are not capped; those of chunks are",
    part="attention",
    effect=Effect.DIVERGES,
    wrap=on_attention(SoftcapDroppedInDecode),
)
register(
    "values-are-keys",
    "F4",
    "full layers whose V is K's projection read K as it is stored, normed and rotated, as V",
    part="attention",
    effect=Effect.DIVERGES,
    wrap=on_attention(ValuesAreKeys),
)
