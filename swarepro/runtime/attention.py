"""The attention block of a layer, from the normed hidden states to the output projection."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from swarepro import points
from swarepro.checkpoint.config import LayerConfig, ModelConfig
from swarepro.checkpoint.weights import LayerWeights
from swarepro.kvcache import HybridKVCache
from swarepro.runtime.batch import RowBlock, StepBatch, joined
from swarepro.runtime.images import keys_ahead
from swarepro.runtime.parts import (
    AttentionCall,
    LayerPlace,
    ScratchUse,
    StageParts,
    StoreContext,
)
from swarepro.runtime.rotary import RotaryTables
from swarepro.runtime.taps import tap_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRun:
    """What one layer needs to compute a step.

    Attributes:
        place: which layer it is, and where its own things are.
        layer: the config that it has.
    """

    config: ModelConfig
    place: LayerPlace
    layer: LayerConfig
    weights: LayerWeights
    cache: HybridKVCache
    batch: StepBatch
    rotary: RotaryTables
    parts: StageParts


@dataclass(frozen=True, slots=True, kw_only=True)
class Projected:
    """Rotated ``q [T, H, D]``, rotated ``k`` and ``v``, both ``[T, K, D]``, of one row block."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor


def attention_block(run: LayerRun, hidden: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Map normed ``hidden``, ``[T, E]`` by block, to the same; writes the rows into the pool.

    One store writes the rows of all blocks; the rest is computed block by block.
    """
    blocks = run.batch.blocks
    projected = [_project(run, block, rows) for block, rows in zip(blocks, hidden, strict=True)]
    _store(run, projected)
    out = []
    for block, heads in zip(blocks, projected, strict=True):
        attended = _attend(run, block, heads)
        tap_rows(run.parts.tap, points.ATTENTION_OUTPUT, attended, block, run.place.layer)
        rows = run.parts.ops.linear(attended.reshape(attended.shape[0], -1), run.weights.o_proj)
        tap_rows(run.parts.tap, points.O_PROJ, rows, block, run.place.layer)
        out.append(rows)
    return out


def _project(run: LayerRun, block: RowBlock, hidden: torch.Tensor) -> Projected:
    ops, tap, layer_id = run.parts.ops, run.parts.tap, run.place.layer
    layer, weights = run.layer, run.weights
    heads, kv_heads, head_dim = run.config.num_heads, layer.num_kv_heads, layer.head_dim
    eps, adds_one = run.config.rms_norm_eps, run.config.norm_adds_one

    qkv = ops.linear(hidden, weights.qkv)
    tap_rows(tap, points.QKV_PROJECTED, qkv, block, layer_id)
    by_head = qkv.view(qkv.shape[0], -1, head_dim)  # [T, H + 2 K, D], or H + K where V is K
    q_in, k_in = by_head[:, :heads], by_head[:, heads : heads + kv_heads]
    v_in = k_in if layer.k_eq_v else by_head[:, heads + kv_heads :]

    if weights.q_norm is None or weights.k_norm is None:
        q, k = q_in.contiguous(), k_in.contiguous()
    else:
        q = ops.rms_norm(q_in, weights.q_norm, eps=eps, adds_one=adds_one)
        tap_rows(tap, points.Q_NORMED, q, block, layer_id)
        k = ops.rms_norm(k_in, weights.k_norm, eps=eps, adds_one=adds_one)
        tap_rows(tap, points.K_NORMED, k, block, layer_id)
    v = ops.rms_norm(v_in, None, eps=eps, adds_one=False) if run.config.has_v_norm else v_in
    v = v.contiguous()
    tap_rows(tap, points.V_NORMED, v, block, layer_id)

    cos, sin = run.rotary.at(block.positions, layer.rope, head_dim)
    q, k = ops.rope(q, cos, sin), ops.rope(k, cos, sin)
    if tap.wants(points.ROTARY_APPLIED, layer_id):
        tap_rows(tap, points.ROTARY_APPLIED, torch.cat([q, k], dim=1), block, layer_id)
    return Projected(q=q, k=k, v=v)


def _store(run: LayerRun, projected: Sequence[Projected]) -> None:
    group = run.place.group
    k_cache, v_cache = run.cache.pools[group].layer(run.place.pool_layer)
    _tap_slices(run, points.KV_SLICE_PRE_WRITE)
    run.parts.store.store(
        joined([heads.k for heads in projected]),
        joined([heads.v for heads in projected]),
        k_cache,
        v_cache,
        run.batch.store_slots(group),
        StoreContext(
            step=run.batch.step,
            layer=run.place.layer,
            group=group,
            pool_layer=run.place.pool_layer,
            spans=run.batch.spans,
        ),
    )
    _tap_slices(run, points.KV_SLICE_POST_WRITE)


def _tap_slices(run: LayerRun, point: points.CapturePoint) -> None:
    tap, layer_id = run.parts.tap, run.place.layer
    if not tap.wants(point, layer_id):
        return
    group = run.place.group
    pool = run.cache.pools[group]
    for block in run.batch.blocks:
        for batch in block.spans:
            visible = batch.visible[group, pool.spec.window_left]
            rows = pool.gather(run.place.pool_layer, visible.slots)
            tap(
                point,
                rows,
                layer_id,
                session=batch.span.session,
                row_start=visible.visible_start,
            )


def _attend(run: LayerRun, block: RowBlock, heads: Projected) -> torch.Tensor:
    group, window_left = run.place.group, run.place.window_left
    pool = run.cache.pools[group]
    k_cache, v_cache = pool.layer(run.place.pool_layer)
    requests = block.requests(group, window_left)
    sees_images = run.layer.kind in run.config.images_in
    return run.parts.attention.attend(
        AttentionCall(
            step=run.batch.step,
            layer=run.place.layer,
            group=group,
            pool_layer=run.place.pool_layer,
            requests=requests,
            batch=run.batch.spans,
            q=heads.q,
            k=heads.k,
            v=heads.v,
            k_cache=k_cache,
            v_cache=v_cache,
            slots=block.slots(group, window_left),
            window_left=window_left,
            ahead=keys_ahead(requests, device=heads.q.device) if sees_images else None,
            scale=run.config.attention_scale,
            softcap=run.config.attention_softcap,
            out=run.parts.scratch.take(tuple(heads.q.shape), ScratchUse.OUTPUT),
            scratch=run.parts.scratch,
        )
    )
