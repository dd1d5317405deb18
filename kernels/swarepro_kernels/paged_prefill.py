"""Split attention of one chunk: its prefix is gathered from the pool, its own rows are contiguous.

One program computes a block of (token, query head) rows that share a kv head. Its loops start at
the first key that its first token sees and end at the last one that a token of it sees, so tiles
that the window hides are never loaded.
"""

import torch
import triton
import triton.language as tl

from swarepro_kernels.attention_tile import (
    attend_tile,
    check_ahead,
    check_heads,
    check_rows,
    dot_operand,
    load_rows,
    result_like,
    score_scales,
    sees,
)
from swarepro_kernels.launch import launch
from swarepro_kernels.launch_attention import (
    AttentionConfig,
    chunk_config,
    padded_head_dim,
    rows_block,
)
from swarepro_kernels.order import ProgramOrder
from swarepro_kernels.tile import narrow, program_id


@triton.jit(do_not_specialize=["num_tokens", "num_prefix", "window_left"])
def _paged_prefill_kernel(
    q_ptr: tl.tensor,
    k_ptr: tl.tensor,
    v_ptr: tl.tensor,
    k_cache_ptr: tl.tensor,
    v_cache_ptr: tl.tensor,
    slots_ptr: tl.tensor,
    ahead_ptr: tl.tensor,
    out_ptr: tl.tensor,
    num_tokens: tl.tensor,
    num_prefix: tl.tensor,
    window_left: tl.tensor,
    score_scale: tl.tensor,
    cap_scale: tl.tensor,
    q_token_stride: tl.tensor,
    q_head_stride: tl.tensor,
    k_token_stride: tl.tensor,
    k_head_stride: tl.tensor,
    v_token_stride: tl.tensor,
    v_head_stride: tl.tensor,
    k_slot_stride: tl.tensor,
    k_cache_head_stride: tl.tensor,
    v_slot_stride: tl.tensor,
    v_cache_head_stride: tl.tensor,
    out_token_stride: tl.tensor,
    out_head_stride: tl.tensor,
    order_ptr: tl.tensor,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_AHEAD: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_ORDER: tl.constexpr,
) -> None:
    pid = program_id(order_ptr, HAS_ORDER).to(tl.int32)
    kv_head = (pid % NUM_KV_HEADS).to(tl.int64)
    # The last block sees most keys: it goes first, so that it does not finish alone.
    block = tl.cdiv(num_tokens * GROUP, BLOCK_M) - 1 - pid // NUM_KV_HEADS

    # row of the block -> token = row // GROUP, query head = kv_head * GROUP + row % GROUP
    row = block * BLOCK_M + tl.arange(0, BLOCK_M)
    token = row // GROUP
    head = kv_head * GROUP + row % GROUP
    is_row = token < num_tokens
    first_token = block * BLOCK_M // GROUP
    last_token = tl.minimum((block * BLOCK_M + BLOCK_M - 1) // GROUP, num_tokens - 1)

    token_wide = token.to(tl.int64)
    last_seen = token
    last_key = last_token
    if HAS_AHEAD:
        last_seen = token + tl.load(ahead_ptr + token_wide, mask=is_row, other=0).to(tl.int32)
        last_key = tl.minimum(tl.max(tl.where(is_row, last_seen, 0), 0), num_tokens - 1)

    q_rows = token_wide * q_token_stride + head * q_head_stride
    q = dot_operand(load_rows(q_ptr, q_rows, is_row, 1, HEAD_DIM, BLOCK_D))
    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    row_max = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    row_sum = tl.zeros([BLOCK_M], dtype=tl.float32)

    prefix_low = 0
    chunk_low = 0
    if HAS_WINDOW:
        prefix_low = tl.maximum(num_prefix + first_token - window_left, 0)
        chunk_low = tl.maximum(first_token - window_left, 0)

    k_cache_ptr += kv_head * k_cache_head_stride
    v_cache_ptr += kv_head * v_cache_head_stride
    for start in range(prefix_low, num_prefix, BLOCK_N):
        key_at = start + tl.arange(0, BLOCK_N)
        present = key_at < num_prefix
        slots = tl.load(slots_ptr + key_at, mask=present, other=0).to(tl.int64)
        k = load_rows(k_cache_ptr, slots, present, k_slot_stride, HEAD_DIM, BLOCK_D)
        v = load_rows(v_cache_ptr, slots, present, v_slot_stride, HEAD_DIM, BLOCK_D)
        query_at = num_prefix + token
        visible = sees(query_at, num_prefix + last_seen, key_at, present, window_left, HAS_WINDOW)
        acc, row_max, row_sum = attend_tile(
            q, k, v, visible, acc, row_max, row_sum, score_scale, cap_scale, HAS_SOFTCAP
        )

    k_ptr += kv_head * k_head_stride
    v_ptr += kv_head * v_head_stride
    for start in range(chunk_low, last_key + 1, BLOCK_N):
        key_at = start + tl.arange(0, BLOCK_N)
        present = key_at <= last_key
        key_rows = key_at.to(tl.int64)
        k = load_rows(k_ptr, key_rows, present, k_token_stride, HEAD_DIM, BLOCK_D)
        v = load_rows(v_ptr, key_rows, present, v_token_stride, HEAD_DIM, BLOCK_D)
        visible = sees(token, last_seen, key_at, present, window_left, HAS_WINDOW)
        acc, row_max, row_sum = attend_tile(
            q, k, v, visible, acc, row_max, row_sum, score_scale, cap_scale, HAS_SOFTCAP
        )

    out = acc / tl.where(row_sum > 0.0, row_sum, 1.0)[:, None]
    dims = tl.arange(0, BLOCK_D)
    out_rows = token_wide * out_token_stride + head * out_head_stride
    tl.store(
        out_ptr + out_rows[:, None] + dims[None, :],
        narrow(out, out_ptr.dtype.element_ty),
        mask=is_row[:, None] & (dims < HEAD_DIM)[None, :],
    )


def paged_prefill(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    prefix_slots: torch.Tensor,
    *,
    window_left: int | None,
    scale: float,
    softcap: float | None = None,
    ahead: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    order: ProgramOrder | None = None,
    config: AttentionConfig | None = None,
) -> torch.Tensor:
    """Attend one chunk to its prefix, read from the pool, and to itself, read from the chunk.

    Reads no key but those that some query sees. Those belong to the request, so they are taken to
    be finite: a NaN in one may reach other rows of its tile. Whatever lies elsewhere in the pool
    changes no bit, NaN included.

    Args:
        q: ``[T, H, D]``; any strides but in D, as of all tensors here.
        k: ``[T, K, D]``, the chunk's own keys, q's dtype.
        v: ``[T, K, D]``.
        k_cache: ``[S, K, D]``.
        v_cache: ``[S, K, D]``.
        prefix_slots: ``[P]`` int64, slots of the P positions just before the chunk; with a window
            the caller may leave out positions that no query sees, and gets the same bits.
        window_left: keys visible to the left of each query; None = all.
        scale: factor of the scores.
        softcap: ``cap * tanh(score / cap)`` before the mask, or None.
        ahead: ``[T]`` int64, keys of the chunk visible to the right of each query; None = none.
        out: ``[T, H, D]``, q's dtype, contiguous: where the result goes; None = allocated.
        order: the order of the program instances; no output depends on it.
        config: launch configuration; None = the table's.

    Returns:
        ``out``: ``[T, H, D]``, q's dtype, contiguous, fully written.

    Raises:
        ValueError: head_dim or dtype has no launch configuration, or the shapes do not agree.
    """
    check_heads(q, k, v, k_cache, v_cache)
    indices = {"prefix_slots": prefix_slots}
    check_rows((k, v), (k_cache, v_cache), indices, num_rows=q.shape[0])
    check_ahead(ahead, q)
    num_tokens, num_heads, head_dim = q.shape
    num_kv_heads = k.shape[1]
    config = chunk_config(head_dim, q.dtype, q.device) if config is None else config
    out = result_like(q, out)
    if num_tokens == 0:
        return out
    group = num_heads // num_kv_heads
    block_m = rows_block(config, num_tokens * group)
    num_programs = triton.cdiv(num_tokens * group, block_m) * num_kv_heads
    score_scale, cap_scale = score_scales(scale, softcap)
    launch(
        _paged_prefill_kernel,
        num_programs,
        q,
        k,
        v,
        k_cache,
        v_cache,
        prefix_slots.contiguous(),
        prefix_slots if ahead is None else ahead.contiguous(),
        out,
        num_tokens,
        prefix_slots.shape[0],
        0 if window_left is None else window_left,
        score_scale,
        cap_scale,
        *q.stride()[:2],
        *k.stride()[:2],
        *v.stride()[:2],
        *k_cache.stride()[:2],
        *v_cache.stride()[:2],
        *out.stride()[:2],
        NUM_KV_HEADS=num_kv_heads,
        GROUP=group,
        HEAD_DIM=head_dim,
        BLOCK_D=padded_head_dim(head_dim),
        BLOCK_M=block_m,
        BLOCK_N=config.block_n,
        HAS_WINDOW=window_left is not None,
        HAS_AHEAD=ahead is not None,
        HAS_SOFTCAP=softcap is not None,
        order=order,
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )
    return out
