"""One Gemma decoder layer: attention and MLP, each between two norms, on a residual stream."""

from collections.abc import Sequence

import torch

from swarepro import points
from swarepro.runtime.attention import LayerRun, attention_block
from swarepro.runtime.batch import RowBlock
from swarepro.runtime.taps import tap_rows


def decoder_layer(run: LayerRun, hidden: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Map the residual stream, ``[T, E]`` by row block, through one layer, to new tensors."""
    tap, blocks = run.parts.tap, run.batch.blocks
    normed = []
    for block, rows in zip(blocks, hidden, strict=True):
        normed.append(_norm(run, rows, run.weights.input_norm))
        tap_rows(tap, points.INPUT_NORMED, normed[-1], block, run.place.layer)
    attended = attention_block(run, normed)
    return [
        _feed_forward(run, block, rows, residual)
        for block, rows, residual in zip(blocks, attended, hidden, strict=True)
    ]


def _feed_forward(
    run: LayerRun, block: RowBlock, attended: torch.Tensor, hidden: torch.Tensor
) -> torch.Tensor:
    ops, tap, weights, layer_id = run.parts.ops, run.parts.tap, run.weights, run.place.layer
    residual = _norm(run, attended, weights.post_attention_norm, residual=hidden)
    tap_rows(tap, points.ATTN_RESIDUAL, residual, block, layer_id)
    gate_up = ops.linear(_norm(run, residual, weights.pre_feedforward_norm), weights.gate_up)
    tap_rows(tap, points.MLP_GATE_UP, gate_up, block, layer_id)
    mlp = ops.linear(ops.gelu_tanh_mul(gate_up), weights.down)
    tap_rows(tap, points.MLP_OUTPUT, mlp, block, layer_id)
    out = _norm(run, mlp, weights.post_feedforward_norm, residual=residual)
    if weights.layer_scalar is not None:
        out = out * weights.layer_scalar
    tap_rows(tap, points.AFTER_LAYER, out, block, layer_id)
    return out


def _norm(
    run: LayerRun, x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor | None = None
) -> torch.Tensor:
    return run.parts.ops.rms_norm(
        x,
        weight,
        eps=run.config.rms_norm_eps,
        adds_one=run.config.norm_adds_one,
        residual=residual,
    )
