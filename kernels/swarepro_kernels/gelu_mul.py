"""The gated activation of the MLP: ``gelu_tanh(gate) * up`` of a fused projection."""

import math

import torch
import triton
import triton.language as tl

from swarepro_kernels.launch import TILES, as_rows, check_float, launch
from swarepro_kernels.order import ProgramOrder
from swarepro_kernels.tile import narrow, program_id, tanh, widen

_SQRT_2_OVER_PI = tl.constexpr(math.sqrt(2.0 / math.pi))


@triton.jit
def _gelu_tanh_mul_kernel(
    x_ptr: tl.tensor,
    out_ptr: tl.tensor,
    x_outer_stride: tl.tensor,
    x_inner_stride: tl.tensor,
    num_inner: tl.tensor,
    order_ptr: tl.tensor,
    FFN: tl.constexpr,
    BLOCK: tl.constexpr,
    HAS_ORDER: tl.constexpr,
) -> None:
    DTYPE: tl.constexpr = out_ptr.dtype.element_ty
    BLOCKS: tl.constexpr = (FFN + BLOCK - 1) // BLOCK
    pid = program_id(order_ptr, HAS_ORDER)
    row = pid // BLOCKS
    column = (pid % BLOCKS) * BLOCK + tl.arange(0, BLOCK)
    exists = column < FFN
    at = (row // num_inner) * x_outer_stride + (row % num_inner) * x_inner_stride + column
    gate = widen(tl.load(x_ptr + at, mask=exists, other=0.0))
    up = widen(tl.load(x_ptr + at + FFN, mask=exists, other=0.0))
    inner = _SQRT_2_OVER_PI * (gate + 0.044715 * gate * gate * gate)
    gelu = narrow(0.5 * gate * (1.0 + tanh(inner)), DTYPE)
    tl.store(out_ptr + row * FFN + column, narrow(widen(gelu) * up, DTYPE), mask=exists)


def gelu_tanh_mul(gate_up: torch.Tensor, *, order: ProgramOrder | None = None) -> torch.Tensor:
    """Return ``gelu_tanh(gate) * up``; the activation is rounded to the dtype before the product.

    Args:
        gate_up: ``[..., 2 F]``, gate first; a view with contiguous rows is read in place.
        order: see `ProgramOrder`.

    Returns:
        New contiguous ``[..., F]``, same dtype.

    Raises:
        ValueError: the dtype is none of the three, or the last dimension is odd.
    """
    check_float("gelu_tanh_mul", gate_up=gate_up)
    ffn = gate_up.shape[-1] // 2
    if gate_up.shape[-1] % 2:
        raise ValueError(f"gelu_tanh_mul: [..., 2 F] wanted, found {tuple(gate_up.shape)}")
    out = torch.empty((*gate_up.shape[:-1], ffn), dtype=gate_up.dtype, device=gate_up.device)
    (tile,) = TILES["gelu_tanh_mul"]
    rows = as_rows(gate_up)
    launch(
        _gelu_tanh_mul_kernel,
        rows.shape[0] * rows.shape[1] * triton.cdiv(ffn, tile.columns),
        rows,
        out,
        *rows.stride()[:2],
        rows.shape[1],
        order=order,
        num_warps=tile.num_warps,
        FFN=ffn,
        BLOCK=tile.columns,
    )
    return out
