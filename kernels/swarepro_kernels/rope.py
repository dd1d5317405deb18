"""Rotary position embedding from tables of cos and sin."""

import torch
import triton
import triton.language as tl

from swarepro_kernels.launch import as_rows, check_float, launch, tile_for
from swarepro_kernels.order import ProgramOrder
from swarepro_kernels.tile import narrow, program_id, widen


@triton.jit
def _rope_kernel(
    x_ptr: tl.tensor,
    cos_ptr: tl.tensor,
    sin_ptr: tl.tensor,
    out_ptr: tl.tensor,
    x_token_stride: tl.tensor,
    x_head_stride: tl.tensor,
    cos_stride: tl.tensor,
    sin_stride: tl.tensor,
    order_ptr: tl.tensor,
    NUM_HEADS: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    HAS_ORDER: tl.constexpr,
) -> None:
    DTYPE: tl.constexpr = out_ptr.dtype.element_ty
    HEAD_BLOCKS: tl.constexpr = (NUM_HEADS + BLOCK_HEADS - 1) // BLOCK_HEADS
    pid = program_id(order_ptr, HAS_ORDER)
    token = pid // HEAD_BLOCKS
    head = (pid % HEAD_BLOCKS) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)
    column = tl.arange(0, BLOCK_HALF)[None, :]
    in_row = column < HALF
    exists = (head < NUM_HEADS)[:, None] & in_row

    cos = widen(tl.load(cos_ptr + token * cos_stride + column, mask=in_row, other=0.0))
    sin = widen(tl.load(sin_ptr + token * sin_stride + column, mask=in_row, other=0.0))
    at = (token * x_token_stride + head * x_head_stride)[:, None] + column
    first = widen(tl.load(x_ptr + at, mask=exists, other=0.0))
    second = widen(tl.load(x_ptr + at + HALF, mask=exists, other=0.0))

    # Products are rounded to the dtype before they are added, as in the twin.
    left = widen(narrow(first * cos, DTYPE)) - widen(narrow(second * sin, DTYPE))
    right = widen(narrow(second * cos, DTYPE)) + widen(narrow(first * sin, DTYPE))
    at = ((token * NUM_HEADS + head) * (2 * HALF))[:, None] + column
    tl.store(out_ptr + at, narrow(left, DTYPE), mask=exists)
    tl.store(out_ptr + at + HALF, narrow(right, DTYPE), mask=exists)


def rope(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    *,
    order: ProgramOrder | None = None,
) -> torch.Tensor:
    """Rotate the halves of each head: ``[x1 cos - x2 sin, x2 cos + x1 sin]``.

    The tables say which rotary embedding it is: default, linear-scaled, or partial, where pairs of
    frequency zero have cos 1 and sin 0 and stay as they are.

    Args:
        x: ``[T, H, D]``; a view with contiguous heads is read in place.
        cos: ``[T, D / 2]``, x's dtype.
        sin: ``[T, D / 2]``, x's dtype.
        order: see `ProgramOrder`.

    Returns:
        New contiguous ``[T, H, D]``, x's dtype; each product is rounded to it before the sum.

    Raises:
        ValueError: shapes, dtypes or devices are not as stated, D is odd, or D > 1024.
    """
    check_float("rope", x=x, cos=cos, sin=sin)
    num_tokens, num_heads, head_dim = x.shape
    half = head_dim // 2
    if head_dim % 2 or cos.shape != (num_tokens, half) or sin.shape != (num_tokens, half):
        found = ", ".join(str(tuple(table.shape)) for table in (x, cos, sin))
        raise ValueError(f"rope: x [T, H, D], cos and sin [T, D / 2] wanted, found {found}")
    tile = tile_for("rope", half)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    x, (cos, sin) = as_rows(x), (as_rows(table)[0] for table in (cos, sin))
    launch(
        _rope_kernel,
        num_tokens * triton.cdiv(num_heads, tile.rows),
        x,
        cos,
        sin,
        out,
        *x.stride()[:2],
        cos.stride(0),
        sin.stride(0),
        order=order,
        num_warps=tile.num_warps,
        NUM_HEADS=num_heads,
        HALF=half,
        BLOCK_HEADS=tile.rows,
        BLOCK_HALF=tile.columns,
    )
    return out
