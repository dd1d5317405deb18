"""Write rows of K and V into pool slots: the store whose order the schedules choose."""

import torch
import triton
import triton.language as tl

from swarepro_kernels.launch import check_float, launch, tile_for
from swarepro_kernels.order import ProgramOrder
from swarepro_kernels.tile import program_id

_FILLS_A_GPU = 1024  # pairs for each further doubling of an instance's share


@triton.jit
def _store_kv_kernel(
    k_ptr: tl.tensor,
    v_ptr: tl.tensor,
    k_cache_ptr: tl.tensor,
    v_cache_ptr: tl.tensor,
    slot_ptr: tl.tensor,
    k_row_stride: tl.tensor,
    k_head_stride: tl.tensor,
    v_row_stride: tl.tensor,
    v_head_stride: tl.tensor,
    k_cache_slot_stride: tl.tensor,
    k_cache_head_stride: tl.tensor,
    v_cache_slot_stride: tl.tensor,
    v_cache_head_stride: tl.tensor,
    num_pairs: tl.tensor,
    num_slots: tl.tensor,
    order_ptr: tl.tensor,
    NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAIRS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    HAS_ORDER: tl.constexpr,
) -> None:
    pid = program_id(order_ptr, HAS_ORDER)
    # Under an order PAIRS is 1, and an instance has one head of one row of K or of V.
    first = pid // 2 if HAS_ORDER else pid * PAIRS
    pair = first + tl.arange(0, PAIRS)
    row = pair // NUM_HEADS
    head = pair % NUM_HEADS
    slot = tl.load(slot_ptr + row, mask=pair < num_pairs, other=-1)
    column = tl.arange(0, BLOCK_D)[None, :]
    stores_k = ((slot >= 0) & (slot < num_slots))[:, None] & (column < HEAD_DIM)
    stores_v = stores_k
    if HAS_ORDER:
        stores_k = stores_k & (pair * 2 == pid)[:, None]
        stores_v = stores_v & (pair * 2 + 1 == pid)[:, None]

    source = (row * k_row_stride + head * k_head_stride)[:, None] + column
    target = (slot * k_cache_slot_stride + head * k_cache_head_stride)[:, None] + column
    value = tl.load(k_ptr + source, mask=stores_k)
    tl.store(k_cache_ptr + target, value, mask=stores_k)

    source = (row * v_row_stride + head * v_head_stride)[:, None] + column
    target = (slot * v_cache_slot_stride + head * v_cache_head_stride)[:, None] + column
    value = tl.load(v_ptr + source, mask=stores_v)
    tl.store(v_cache_ptr + target, value, mask=stores_v)


def pairs_of(num_pairs: int, most: int) -> int:
    """Return how many (row, head) pairs an instance writes, a power of two, from shapes alone.

    A chunk of a prompt gets an instance for each pair; only stores that fill a GPU many times over
    are grouped, up to ``most``.
    """
    return max(1, min(most, 1 << max(0, num_pairs // _FILLS_A_GPU).bit_length() >> 1))


def store_kv(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    *,
    order: ProgramOrder | None = None,
) -> None:
    """Write each row of K and V to its slot.

    Under an order one program instance writes one head of one row of K or of V, with
    ``id = (row * K + head) * 2 + (0 for K, 1 for V)``, and the order is over ``T * K * 2`` of them.
    Without one an instance writes K and V of a pair, or of several where there are thousands;
    compiled instances are concurrent either way, so where slots repeat it is open which of the
    rows a (slot, head, K or V) holds afterwards.

    Args:
        k: ``[T, K, D]``; here and below any strides, except that D is contiguous.
        v: ``[T, K, D]``, same dtype.
        k_cache: ``[S, K, D]``, same dtype; written at ``slot_mapping``, nowhere else.
        v_cache: ``[S, K, D]``, likewise.
        slot_mapping: ``[T]`` int64; rows with a slot outside ``[0, S)`` are not written.
        order: see `ProgramOrder`.

    Raises:
        ValueError: shapes, dtypes, devices or D's stride are not as stated, or D > 1024.
    """
    check_float("store_kv", k=k, v=v, k_cache=k_cache, v_cache=v_cache)
    num_rows, num_heads, head_dim = k.shape
    if v.shape != k.shape or k_cache.shape != v_cache.shape or k_cache.shape[1:] != k.shape[1:]:
        found = ", ".join(str(tuple(x.shape)) for x in (k, v, k_cache, v_cache))
        raise ValueError(f"store_kv: K, V [T, K, D] and caches [S, K, D] wanted, found {found}")
    if slot_mapping.shape != (num_rows,) or slot_mapping.dtype != torch.int64:
        found = f"{tuple(slot_mapping.shape)} {slot_mapping.dtype}"
        raise ValueError(f"store_kv: slot_mapping [{num_rows}] int64 wanted, found {found}")
    if any(x.stride(2) != 1 for x in (k, v, k_cache, v_cache)):
        raise ValueError("store_kv: the last dimension must be contiguous")
    tile = tile_for("store_kv", head_dim)
    num_pairs = num_rows * num_heads
    pairs = pairs_of(num_pairs, tile.rows) if order is None else 1
    launch(
        _store_kv_kernel,
        triton.cdiv(num_pairs, pairs) if order is None else num_pairs * 2,
        k,
        v,
        k_cache,
        v_cache,
        slot_mapping.contiguous(),
        *k.stride()[:2],
        *v.stride()[:2],
        *k_cache.stride()[:2],
        *v_cache.stride()[:2],
        num_pairs,
        k_cache.shape[0],
        order=order,
        num_warps=max(1, tile.num_warps * pairs // tile.rows),
        NUM_HEADS=num_heads,
        HEAD_DIM=head_dim,
        PAIRS=pairs,
        BLOCK_D=tile.columns,
    )
