"""The attention block of a layer, from the normed hidden states to the output projection."""

import torch

from swarepro import points
from swarepro.checkpoint.config import LayerConfig, ModelConfig
from swarepro.checkpoint.weights import LayerWeights
from swarepro.kvcache import HybridKVCache
from swarepro.runtime.batch import StepBatch
from swarepro.runtime.groups import group_of
from swarepro.runtime.parts import AttentionCall, StageParts, StoreContext
from swarepro.runtime.rotary import RotaryTables


def attention_block(
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
    """Map normed ``hidden [T, E]`` to ``[T, E]``; writes the step's rows into the pool."""
    ops, tap, layer_id = parts.ops, parts.tap, layer.layer
    heads, kv_heads, head_dim = config.num_heads, layer.num_kv_heads, layer.head_dim
    eps, adds_one = config.rms_norm_eps, config.norm_adds_one

    qkv = ops.linear(hidden, weights.qkv)
    tap(points.QKV_PROJECTED, qkv, layer_id, row_start=batch.start)
    by_head = qkv.view(qkv.shape[0], -1, head_dim)  # [T, H + 2 K, D], or H + K where V is K
    q_in, k_in = by_head[:, :heads], by_head[:, heads : heads + kv_heads]
    v_in = k_in if layer.k_eq_v else by_head[:, heads + kv_heads :]

    q = ops.rms_norm(q_in, weights.q_norm, eps=eps, adds_one=adds_one)
    tap(points.Q_NORMED, q, layer_id, row_start=batch.start)
    k = ops.rms_norm(k_in, weights.k_norm, eps=eps, adds_one=adds_one)
    tap(points.K_NORMED, k, layer_id, row_start=batch.start)
    v = ops.rms_norm(v_in, None, eps=eps, adds_one=False) if config.has_v_norm else v_in
    v = v.contiguous()
    tap(points.V_NORMED, v, layer_id, row_start=batch.start)

    cos, sin = rotary.at(batch.positions, layer.rope, head_dim)
    q, k = ops.rope(q, cos, sin), ops.rope(k, cos, sin)
    if tap.wants(points.ROTARY_APPLIED, layer_id):
        tap(points.ROTARY_APPLIED, torch.cat([q, k], dim=1), layer_id, row_start=batch.start)

    group = group_of(layer.kind)
    pool, visible = cache.pools[group], batch.groups[group]
    k_cache, v_cache = pool.layer(layer_id)
    if tap.wants(points.KV_SLICE_PRE_WRITE, layer_id):
        rows = pool.gather(layer_id, visible.slots)
        tap(points.KV_SLICE_PRE_WRITE, rows, layer_id, row_start=visible.visible_start)
    parts.store.store(
        k,
        v,
        k_cache,
        v_cache,
        visible.slots[-qkv.shape[0] :],
        StoreContext(session=batch.session, step=batch.step, layer=layer_id),
    )
    if tap.wants(points.KV_SLICE_POST_WRITE, layer_id):
        rows = pool.gather(layer_id, visible.slots)
        tap(points.KV_SLICE_POST_WRITE, rows, layer_id, row_start=visible.visible_start)

    out = parts.attention.attend(
        AttentionCall(
            phase=batch.phase,
            layer=layer_id,
            q=q,
            k=k,
            v=v,
            k_cache=k_cache,
            v_cache=v_cache,
            slots=visible.slots,
            window_left=pool.spec.window_left,
            scale=config.attention_scale,
            softcap=config.attention_softcap,
        )
    )
    tap(points.ATTENTION_OUTPUT, out, layer_id, row_start=batch.start)
    projected = ops.linear(out.reshape(out.shape[0], -1), weights.o_proj)
    tap(points.O_PROJ, projected, layer_id, row_start=batch.start)
    return projected
