"""One Gemma decoder layer: attention and MLP, each between two norms, on a residual stream."""

import torch

from swarepro import points
from swarepro.checkpoint.config import LayerConfig, ModelConfig
from swarepro.checkpoint.weights import LayerWeights
from swarepro.kvcache import HybridKVCache
from swarepro.runtime.attention import attention_block
from swarepro.runtime.batch import StepBatch
from swarepro.runtime.parts import StageParts
from swarepro.runtime.rotary import RotaryTables


def decoder_layer(
    hidden: torch.Tensor,
    *,
    config: ModelConfig,
    layer: LayerConfig,
    weights: LayerWeights,
    cache: HybridKVCache,
    batch: StepBatch,
    rotary: RotaryTables,
    parts: StageParts,
) -> torch.Tensor:
    """Map the residual stream ``hidden [T, E]`` through one layer, to a new ``[T, E]``."""
    ops, tap, layer_id = parts.ops, parts.tap, layer.layer

    def norm(
        x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor | None = None
    ) -> torch.Tensor:
        return ops.rms_norm(
            x,
            weight,
            eps=config.rms_norm_eps,
            adds_one=config.norm_adds_one,
            residual=residual,
        )

    normed = norm(hidden, weights.input_norm)
    tap(points.INPUT_NORMED, normed, layer_id, row_start=batch.start)
    attended = attention_block(
        normed,
        config=config,
        layer=layer,
        weights=weights,
        cache=cache,
        batch=batch,
        rotary=rotary,
        parts=parts,
    )
    residual = norm(attended, weights.post_attention_norm, residual=hidden)
    tap(points.ATTN_RESIDUAL, residual, layer_id, row_start=batch.start)
    gate_up = ops.linear(norm(residual, weights.pre_feedforward_norm), weights.gate_up)
    tap(points.MLP_GATE_UP, gate_up, layer_id, row_start=batch.start)
    mlp = ops.linear(ops.gelu_tanh_mul(gate_up), weights.down)
    tap(points.MLP_OUTPUT, mlp, layer_id, row_start=batch.start)
    out = norm(mlp, weights.post_feedforward_norm, residual=residual)
    if weights.layer_scalar is not None:
        out = out * weights.layer_scalar
    tap(points.AFTER_LAYER, out, layer_id, row_start=batch.start)
    return out
