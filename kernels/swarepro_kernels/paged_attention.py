"""The general route: every key is read from the pool, any mix of prefill and decode in one launch.

Blocks of requests are numbered so that shapes alone bound their count: request ``r``, whose queries
start at row ``s`` of the step, owns the blocks from ``s * group // block_m + r`` on. A block that
turns out to have no row loads no key and writes nothing, so nothing is copied to the host.
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
    MIN_BLOCK,
    AttentionConfig,
    chunk_config,
    padded_head_dim,
    rows_block,
)
from swarepro_kernels.order import ProgramOrder
from swarepro_kernels.tile import narrow, program_id


@triton.jit(do_not_specialize=["num_requests", "window_left"])
def _paged_attention_kernel(
    q_ptr: tl.tensor,
    k_cache_ptr: tl.tensor,
    v_cache_ptr: tl.tensor,
    slots_ptr: tl.tensor,
    kv_indptr_ptr: tl.tensor,
    query_indptr_ptr: tl.tensor,
    ahead_ptr: tl.tensor,
    out_ptr: tl.tensor,
    num_requests: tl.tensor,
    window_left: tl.tensor,
    score_scale: tl.tensor,
    cap_scale: tl.tensor,
    q_token_stride: tl.tensor,
    q_head_stride: tl.tensor,
    k_slot_stride: tl.tensor,
    k_head_stride: tl.tensor,
    v_slot_stride: tl.tensor,
    v_head_stride: tl.tensor,
    out_token_stride: tl.tensor,
    out_head_stride: tl.tensor,
    order_ptr: tl.tensor,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_R: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_AHEAD: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_ORDER: tl.constexpr,
) -> None:
    pid = program_id(order_ptr, HAS_ORDER).to(tl.int32)
    kv_head = (pid % NUM_KV_HEADS).to(tl.int64)
    block = pid // NUM_KV_HEADS

    # The request of this block: the last one whose first block is not after it.
    requests = tl.arange(0, BLOCK_R)
    is_request = requests < num_requests
    starts = tl.load(query_indptr_ptr + requests, mask=is_request, other=0).to(tl.int32)
    first_blocks = starts * GROUP // BLOCK_M + requests
    request = tl.sum((is_request & (first_blocks <= block)).to(tl.int32), 0) - 1
    query_begin = tl.load(query_indptr_ptr + request).to(tl.int32)
    num_tokens = tl.load(query_indptr_ptr + request + 1).to(tl.int32) - query_begin
    kv_begin = tl.load(kv_indptr_ptr + request)
    context = (tl.load(kv_indptr_ptr + request + 1) - kv_begin).to(tl.int32)
    tile = block - (query_begin * GROUP // BLOCK_M + request)

    # row of the tile -> token of the request = row // GROUP,
    #                    query head = kv_head * GROUP + row % GROUP
    row = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    token = row // GROUP
    head = kv_head * GROUP + row % GROUP
    is_row = token < num_tokens
    first_token = tile * BLOCK_M // GROUP
    last_token = tl.minimum((tile * BLOCK_M + BLOCK_M - 1) // GROUP, num_tokens - 1)

    step_token = (query_begin + token).to(tl.int64)
    last_seen = token
    last_key = last_token
    if HAS_AHEAD:
        last_seen = token + tl.load(ahead_ptr + step_token, mask=is_row, other=0).to(tl.int32)
        last_key = tl.minimum(tl.max(tl.where(is_row, last_seen, 0), 0), num_tokens - 1)

    q_rows = step_token * q_token_stride + head * q_head_stride
    q = dot_operand(load_rows(q_ptr, q_rows, is_row, 1, HEAD_DIM, BLOCK_D))
    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    row_max = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    row_sum = tl.zeros([BLOCK_M], dtype=tl.float32)

    # The last query of a request is at its last key.
    num_before = context - num_tokens
    low = 0
    if HAS_WINDOW:
        low = tl.maximum(num_before + first_token - window_left, 0)
    high = tl.where(first_token < num_tokens, num_before + last_key + 1, 0)

    slots_ptr += kv_begin
    k_cache_ptr += kv_head * k_head_stride
    v_cache_ptr += kv_head * v_head_stride
    for start in range(low, high, BLOCK_N):
        key_at = start + tl.arange(0, BLOCK_N)
        present = key_at < high
        slots = tl.load(slots_ptr + key_at, mask=present, other=0).to(tl.int64)
        k = load_rows(k_cache_ptr, slots, present, k_slot_stride, HEAD_DIM, BLOCK_D)
        v = load_rows(v_cache_ptr, slots, present, v_slot_stride, HEAD_DIM, BLOCK_D)
        query_at = num_before + token
        visible = sees(query_at, num_before + last_seen, key_at, present, window_left, HAS_WINDOW)
        acc, row_max, row_sum = attend_tile(
            q, k, v, visible, acc, row_max, row_sum, score_scale, cap_scale, HAS_SOFTCAP
        )

    out = acc / tl.where(row_sum > 0.0, row_sum, 1.0)[:, None]
    dims = tl.arange(0, BLOCK_D)
    out_rows = step_token * out_token_stride + head * out_head_stride
    tl.store(
        out_ptr + out_rows[:, None] + dims[None, :],
        narrow(out, out_ptr.dtype.element_ty),
        mask=is_row[:, None] & (dims < HEAD_DIM)[None, :],
    )


def paged_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slots: torch.Tensor,
    *,
    query_indptr: torch.Tensor,
    kv_indptr: torch.Tensor,
    window_left: int | None,
    scale: float,
    softcap: float | None = None,
    ahead: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    order: ProgramOrder | None = None,
    config: AttentionConfig | None = None,
) -> torch.Tensor:
    """Attend the queries of R requests to their keys, all read from the pool.

    Reads no key but those that some query sees. Those belong to the request, so they are taken to
    be finite: a NaN in one may reach other rows of its tile, which are rows of the same request.
    Whatever lies elsewhere in the pool changes no bit, NaN included.

    Args:
        q: ``[T, H, D]``, request after request; any strides but in D, as of all tensors here.
        k_cache: ``[S, K, D]``, q's dtype.
        v_cache: ``[S, K, D]``.
        slots: ``[N]`` int64, the slots of each request's positions in order, request after request;
            with a window the caller may leave out positions that no query sees.
        query_indptr: ``[R + 1]`` int64: request r has the queries ``[r] .. [r + 1]`` of ``q``, one
            for a decode, more for a chunk.
        kv_indptr: ``[R + 1]`` int64: likewise its slots; the last query is at the last of them, so
            it has at least as many slots as queries.
        window_left: keys visible to the left of each query; None = all.
        scale: factor of the scores.
        softcap: ``cap * tanh(score / cap)`` before the mask, or None.
        ahead: ``[T]`` int64, keys of its request visible to the right of each query; None = none.
        out: ``[T, H, D]``, q's dtype, contiguous: where the result goes; None = allocated.
        order: the order of the program instances; no output depends on it.
        config: launch configuration; None = the table's.

    Returns:
        ``out``: ``[T, H, D]``, q's dtype, contiguous, fully written.

    Raises:
        ValueError: head_dim or dtype has no launch configuration, or the shapes do not agree.
    """
    check_heads(q, k_cache, v_cache)
    indices = {"slots": slots, "query_indptr": query_indptr, "kv_indptr": kv_indptr}
    check_rows((k_cache, v_cache), (k_cache, v_cache), indices)
    check_ahead(ahead, q)
    num_tokens, num_heads, head_dim = q.shape
    num_kv_heads = k_cache.shape[1]
    num_requests = query_indptr.shape[0] - 1
    if kv_indptr.shape != query_indptr.shape or num_requests < 1:
        raise ValueError(
            f"query_indptr has {num_requests + 1} entries, kv_indptr {kv_indptr.shape[0]}"
        )
    config = chunk_config(head_dim, q.dtype, q.device) if config is None else config
    out = result_like(q, out)
    if num_tokens == 0:
        return out
    group = num_heads // num_kv_heads
    block_m = rows_block(config, triton.cdiv(num_tokens, num_requests) * group)
    num_programs = (num_tokens * group // block_m + num_requests) * num_kv_heads
    score_scale, cap_scale = score_scales(scale, softcap)
    launch(
        _paged_attention_kernel,
        num_programs,
        q,
        k_cache,
        v_cache,
        slots.contiguous(),
        kv_indptr.contiguous(),
        query_indptr.contiguous(),
        slots if ahead is None else ahead.contiguous(),
        out,
        num_requests,
        0 if window_left is None else window_left,
        score_scale,
        cap_scale,
        *q.stride()[:2],
        *k_cache.stride()[:2],
        *v_cache.stride()[:2],
        *out.stride()[:2],
        NUM_KV_HEADS=num_kv_heads,
        GROUP=group,
        HEAD_DIM=head_dim,
        BLOCK_D=padded_head_dim(head_dim),
        BLOCK_M=block_m,
        BLOCK_N=config.block_n,
        BLOCK_R=max(MIN_BLOCK, triton.next_power_of_2(num_requests)),
        HAS_WINDOW=window_left is not None,
        HAS_AHEAD=ahead is not None,
        HAS_SOFTCAP=softcap is not None,
        order=order,
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )
    return out
