"""Split-KV decode: programs attend shares of the keys, a second kernel adds them in fixed order.

Partial outputs and log-sum-exps live in explicit scratch of which every element that is read was
written by the same call. There are no atomics, and shapes alone decide the number of shares.
"""

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from swarepro_kernels.attention_tile import (
    attend_tile,
    check_heads,
    check_rows,
    dot_operand,
    load_rows,
    result_like,
    score_scales,
)
from swarepro_kernels.launch import launch
from swarepro_kernels.launch_attention import AttentionConfig, decode_config, padded_head_dim
from swarepro_kernels.order import ProgramOrder
from swarepro_kernels.tile import narrow, program_id

MAX_SPLITS = 128
"""The most shares that the reduction adds."""
MIN_SPLIT_KEYS = 128
TARGET_PROGRAMS = 512
"""Enough programs to fill the largest cards; more would only lengthen the reduction."""
REDUCE_DIMS, REDUCE_SPLITS = 128, 16


def num_decode_splits(context: int, num_kv_heads: int, num_requests: int) -> int:
    """Return into how many shares `paged_decode` cuts each context.

    Args:
        context: keys of a request; of several, their mean.
        num_kv_heads: of the layer.
        num_requests: of the step.
    """
    wanted = math.ceil(TARGET_PROGRAMS / (num_kv_heads * max(1, num_requests)))
    return max(1, min(wanted, math.ceil(context / MIN_SPLIT_KEYS), MAX_SPLITS))


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeScratch:
    """Scratch of `paged_decode`; its content never matters.

    Attributes:
        partial: ``[splits, R, H, D]`` float32, outputs of each share.
        lse: ``[splits, R, H]`` float32, their log-sum-exps in base two, -inf for a share of no key.
    """

    partial: torch.Tensor
    lse: torch.Tensor

    @classmethod
    def make(
        cls,
        *,
        num_splits: int,
        num_requests: int,
        num_heads: int,
        head_dim: int,
        device: torch.device,
    ) -> "DecodeScratch":
        """Allocate, without writing. Larger splits and R than a call needs are fine."""
        shape = (num_splits, num_requests, num_heads)
        return cls(
            partial=torch.empty((*shape, head_dim), dtype=torch.float32, device=device),
            lse=torch.empty(shape, dtype=torch.float32, device=device),
        )

    def check(self, num_splits: int, q: torch.Tensor) -> None:
        """Check that ``num_splits`` shares of ``q [R, H, D]`` fit; raises `ValueError`."""
        splits, requests, heads, head_dim = self.partial.shape
        fits = splits >= num_splits and requests >= q.shape[0] and q.shape[1:] == (heads, head_dim)
        if not fits or self.lse.shape != self.partial.shape[:3] or self.partial.stride(3) != 1:
            raise ValueError(
                f"scratch of {tuple(self.partial.shape)} and {tuple(self.lse.shape)} cannot hold "
                f"{num_splits} shares of {tuple(q.shape)}"
            )
        for tensor in (self.partial, self.lse):
            if tensor.dtype != torch.float32 or tensor.device != q.device:
                raise ValueError(
                    f"scratch is {tensor.dtype} on {tensor.device}; "
                    f"torch.float32 on {q.device} is needed"
                )


@triton.jit(do_not_specialize=["num_keys", "num_splits"])
def _paged_decode_kernel(
    q_ptr: tl.tensor,
    k_cache_ptr: tl.tensor,
    v_cache_ptr: tl.tensor,
    slots_ptr: tl.tensor,
    kv_indptr_ptr: tl.tensor,
    partial_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    num_keys: tl.tensor,
    num_splits: tl.tensor,
    score_scale: tl.tensor,
    cap_scale: tl.tensor,
    q_request_stride: tl.tensor,
    q_head_stride: tl.tensor,
    k_slot_stride: tl.tensor,
    k_head_stride: tl.tensor,
    v_slot_stride: tl.tensor,
    v_head_stride: tl.tensor,
    partial_split_stride: tl.tensor,
    partial_request_stride: tl.tensor,
    partial_head_stride: tl.tensor,
    lse_split_stride: tl.tensor,
    lse_request_stride: tl.tensor,
    lse_head_stride: tl.tensor,
    order_ptr: tl.tensor,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HAS_INDPTR: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_ORDER: tl.constexpr,
) -> None:
    pid = program_id(order_ptr, HAS_ORDER).to(tl.int32)
    # pid = ((request * num_splits + split) * HEAD_BLOCKS + head_block) * NUM_KV_HEADS + kv_head
    HEAD_BLOCKS: tl.constexpr = (GROUP + BLOCK_M - 1) // BLOCK_M
    kv_head = (pid % NUM_KV_HEADS).to(tl.int64)
    head_block = pid // NUM_KV_HEADS % HEAD_BLOCKS
    share = pid // (NUM_KV_HEADS * HEAD_BLOCKS)
    split = (share % num_splits).to(tl.int64)
    request = (share // num_splits).to(tl.int64)

    begin = 0
    context = num_keys
    if HAS_INDPTR:
        begin = tl.load(kv_indptr_ptr + request).to(tl.int64)
        context = (tl.load(kv_indptr_ptr + request + 1) - begin).to(tl.int32)
    share_keys = tl.cdiv(tl.cdiv(context, num_splits), BLOCK_N) * BLOCK_N
    low = split.to(tl.int32) * share_keys
    high = tl.minimum(low + share_keys, context)

    row = head_block * BLOCK_M + tl.arange(0, BLOCK_M)
    head = kv_head * GROUP + row
    is_row = row < GROUP
    q_rows = request * q_request_stride + head * q_head_stride
    q = dot_operand(load_rows(q_ptr, q_rows, is_row, 1, HEAD_DIM, BLOCK_D))
    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    row_max = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    row_sum = tl.zeros([BLOCK_M], dtype=tl.float32)

    slots_ptr += begin
    k_cache_ptr += kv_head * k_head_stride
    v_cache_ptr += kv_head * v_head_stride
    for start in range(low, high, BLOCK_N):
        key_at = start + tl.arange(0, BLOCK_N)
        present = key_at < high
        slots = tl.load(slots_ptr + key_at, mask=present, other=0).to(tl.int64)
        k = load_rows(k_cache_ptr, slots, present, k_slot_stride, HEAD_DIM, BLOCK_D)
        v = load_rows(v_cache_ptr, slots, present, v_slot_stride, HEAD_DIM, BLOCK_D)
        visible = present[None, :]
        acc, row_max, row_sum = attend_tile(
            q, k, v, visible, acc, row_max, row_sum, score_scale, cap_scale, HAS_SOFTCAP
        )

    # A share of no key writes zeros and -inf: the reduction reads every share.
    total = tl.where(row_sum > 0.0, row_sum, 1.0)
    lse = tl.where(row_sum > 0.0, row_max + tl.log2(total), float("-inf"))
    dims = tl.arange(0, BLOCK_D)
    rows = (
        split * partial_split_stride + request * partial_request_stride + head * partial_head_stride
    )
    tl.store(
        partial_ptr + rows[:, None] + dims[None, :],
        acc / total[:, None],
        mask=is_row[:, None] & (dims < HEAD_DIM)[None, :],
    )
    lse_at = split * lse_split_stride + request * lse_request_stride + head * lse_head_stride
    tl.store(lse_ptr + lse_at, lse, mask=is_row)


@triton.jit(do_not_specialize=["num_splits"])
def _decode_reduce_kernel(
    partial_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    out_ptr: tl.tensor,
    num_splits: tl.tensor,
    partial_split_stride: tl.tensor,
    partial_request_stride: tl.tensor,
    partial_head_stride: tl.tensor,
    lse_split_stride: tl.tensor,
    lse_request_stride: tl.tensor,
    lse_head_stride: tl.tensor,
    out_request_stride: tl.tensor,
    out_head_stride: tl.tensor,
    order_ptr: tl.tensor,
    NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_S: tl.constexpr,
    MAX_S: tl.constexpr,
    HAS_ORDER: tl.constexpr,
) -> None:
    pid = program_id(order_ptr, HAS_ORDER).to(tl.int32)
    # pid = (request * NUM_HEADS + head) * DIM_BLOCKS + dim_block
    DIM_BLOCKS: tl.constexpr = (HEAD_DIM + BLOCK_D - 1) // BLOCK_D
    dims = pid % DIM_BLOCKS * BLOCK_D + tl.arange(0, BLOCK_D)
    is_dim = dims < HEAD_DIM
    head = (pid // DIM_BLOCKS % NUM_HEADS).to(tl.int64)
    request = (pid // (DIM_BLOCKS * NUM_HEADS)).to(tl.int64)
    lse_ptr += request * lse_request_stride + head * lse_head_stride
    partial_ptr += request * partial_request_stride + head * partial_head_stride

    every = tl.arange(0, MAX_S)
    all_lse = tl.load(
        lse_ptr + every.to(tl.int64) * lse_split_stride,
        mask=every < num_splits,
        other=float("-inf"),
    )
    top = tl.max(all_lse, 0)
    top = tl.where(top == float("-inf"), 0.0, top)
    total = tl.sum(tl.exp2(all_lse - top), 0)

    acc = tl.zeros([BLOCK_D], dtype=tl.float32)
    for start in range(0, num_splits, BLOCK_S):
        splits = start + tl.arange(0, BLOCK_S)
        present = splits < num_splits
        at = splits.to(tl.int64)
        lse = tl.load(lse_ptr + at * lse_split_stride, mask=present, other=float("-inf"))
        shares = tl.load(
            partial_ptr + at[:, None] * partial_split_stride + dims[None, :],
            mask=present[:, None] & is_dim[None, :],
            other=0.0,
        )
        acc += tl.sum(tl.exp2(lse - top)[:, None] * shares, 0)

    out = acc / tl.where(total > 0.0, total, 1.0)
    tl.store(
        out_ptr + request * out_request_stride + head * out_head_stride + dims,
        narrow(out, out_ptr.dtype.element_ty),
        mask=is_dim,
    )


def paged_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slots: torch.Tensor,
    *,
    scale: float,
    softcap: float | None = None,
    kv_indptr: torch.Tensor | None = None,
    num_splits: int | None = None,
    scratch: DecodeScratch | None = None,
    out: torch.Tensor | None = None,
    order: ProgramOrder | None = None,
    config: AttentionConfig | None = None,
) -> torch.Tensor:
    """Attend one query of each request to all keys that it may see, read from the pool.

    Reads no slot but those listed; whatever lies elsewhere in the pool, or in the scratch, changes
    no bit, NaN included.

    Args:
        q: ``[R, H, D]``; any strides but in D, as of all tensors here.
        k_cache: ``[S, K, D]``, q's dtype.
        v_cache: ``[S, K, D]``.
        slots: ``[N]`` int64, for each request the slots of its visible positions in order, the
            query's own last; at least one.
        scale: factor of the scores.
        softcap: ``cap * tanh(score / cap)`` before the mask, or None.
        kv_indptr: ``[R + 1]`` int64: request r has the slots ``[r] .. [r + 1]``; None = one
            request, all slots.
        num_splits: shares of each context; None = `num_decode_splits`.
        scratch: of at least ``num_splits`` shares; None = allocated.
        out: ``[R, H, D]``, q's dtype, contiguous: where the result goes; None = allocated.
        order: the order of the program instances, asked for each of the two launches; no output
            depends on it.
        config: launch configuration; None = the table's.

    Returns:
        ``out``: ``[R, H, D]``, q's dtype, contiguous, fully written.

    Raises:
        ValueError: head_dim or dtype has no launch configuration, or the shapes do not agree.
    """
    check_heads(q, k_cache, v_cache)
    indices = {"slots": slots} if kv_indptr is None else {"slots": slots, "kv_indptr": kv_indptr}
    check_rows((k_cache, v_cache), (k_cache, v_cache), indices)
    num_requests, num_heads, head_dim = q.shape
    num_kv_heads = k_cache.shape[1]
    if num_requests != (1 if kv_indptr is None else kv_indptr.shape[0] - 1):
        raise ValueError(f"{num_requests} queries need a kv_indptr of {num_requests + 1} entries")
    config = decode_config(head_dim, q.dtype, q.device) if config is None else config
    out = result_like(q, out)
    if num_requests == 0:
        return out
    if num_splits is None:
        mean = triton.cdiv(slots.shape[0], num_requests)
        num_splits = num_decode_splits(mean, num_kv_heads, num_requests)
    if not 1 <= num_splits <= MAX_SPLITS:
        raise ValueError(f"{num_splits} splits; 1 to {MAX_SPLITS} are possible")
    if scratch is None:
        scratch = DecodeScratch.make(
            num_splits=num_splits,
            num_requests=num_requests,
            num_heads=num_heads,
            head_dim=head_dim,
            device=q.device,
        )
    scratch.check(num_splits, q)
    group = num_heads // num_kv_heads
    padded = padded_head_dim(head_dim)
    score_scale, cap_scale = score_scales(scale, softcap)

    head_blocks = triton.cdiv(group, config.block_m)
    num_programs = num_requests * num_splits * head_blocks * num_kv_heads
    launch(
        _paged_decode_kernel,
        num_programs,
        q,
        k_cache,
        v_cache,
        slots.contiguous(),
        None if kv_indptr is None else kv_indptr.contiguous(),
        scratch.partial,
        scratch.lse,
        slots.shape[0],
        num_splits,
        score_scale,
        cap_scale,
        *q.stride()[:2],
        *k_cache.stride()[:2],
        *v_cache.stride()[:2],
        *scratch.partial.stride()[:3],
        *scratch.lse.stride(),
        NUM_KV_HEADS=num_kv_heads,
        GROUP=group,
        HEAD_DIM=head_dim,
        BLOCK_D=padded,
        BLOCK_M=config.block_m,
        BLOCK_N=config.block_n,
        HAS_INDPTR=kv_indptr is not None,
        HAS_SOFTCAP=softcap is not None,
        order=order,
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )

    block_d = min(padded, REDUCE_DIMS)
    num_programs = num_requests * num_heads * triton.cdiv(head_dim, block_d)
    launch(
        _decode_reduce_kernel,
        num_programs,
        scratch.partial,
        scratch.lse,
        out,
        num_splits,
        *scratch.partial.stride()[:3],
        *scratch.lse.stride(),
        *out.stride()[:2],
        NUM_HEADS=num_heads,
        HEAD_DIM=head_dim,
        BLOCK_D=block_d,
        BLOCK_S=REDUCE_SPLITS,
        MAX_S=MAX_SPLITS,
        order=order,
        num_warps=4,
        num_stages=2,
    )
    return out
