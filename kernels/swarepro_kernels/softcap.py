"""Squash values smoothly into ``(-cap, cap)``, in place where wanted."""

import torch
import triton
import triton.language as tl

from swarepro_kernels.launch import TILES, as_rows, check_float, launch
from swarepro_kernels.order import ProgramOrder
from swarepro_kernels.tile import narrow, program_id, tanh, widen


@triton.jit
def _softcap_kernel(
    x_ptr: tl.tensor,
    out_ptr: tl.tensor,
    x_outer_stride: tl.tensor,
    x_inner_stride: tl.tensor,
    out_outer_stride: tl.tensor,
    out_inner_stride: tl.tensor,
    num_inner: tl.tensor,
    cap: tl.tensor,
    order_ptr: tl.tensor,
    NUM_COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
    HAS_ORDER: tl.constexpr,
) -> None:
    DTYPE: tl.constexpr = out_ptr.dtype.element_ty
    BLOCKS: tl.constexpr = (NUM_COLUMNS + BLOCK - 1) // BLOCK
    pid = program_id(order_ptr, HAS_ORDER)
    row = pid // BLOCKS
    outer = row // num_inner
    inner = row % num_inner
    column = (pid % BLOCKS) * BLOCK + tl.arange(0, BLOCK)
    exists = column < NUM_COLUMNS
    at = outer * x_outer_stride + inner * x_inner_stride + column
    x = widen(tl.load(x_ptr + at, mask=exists, other=0.0))
    scaled = widen(narrow(tl.div_rn(x, tl.full([BLOCK], cap, tl.float32)), DTYPE))
    out = widen(narrow(tanh(scaled), DTYPE)) * cap
    at = outer * out_outer_stride + inner * out_inner_stride + column
    tl.store(out_ptr + at, narrow(out, DTYPE), mask=exists)


def softcap(
    x: torch.Tensor,
    cap: float,
    *,
    out: torch.Tensor | None = None,
    order: ProgramOrder | None = None,
) -> torch.Tensor:
    """Return ``cap * tanh(x / cap)``; each of the three steps is rounded to the dtype.

    Args:
        x: ``[..., N]``; a view with contiguous rows is read in place.
        cap: positive.
        out: ``[..., N]``, x's dtype, contiguous rows: fully written and returned; ``x`` itself
            makes it an operation in place. None = a new contiguous tensor.
        order: see `ProgramOrder`.

    Raises:
        ValueError: dtypes, shapes or devices are not as stated, or out's rows are not contiguous.
    """
    check_float("softcap", x=x, out=out)
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rows, out_rows = as_rows(x), as_rows(out)
    if out.shape != x.shape or out_rows.data_ptr() != out.data_ptr():
        found = f"shape {tuple(out.shape)}, strides {out.stride()}"
        raise ValueError(f"softcap: out {tuple(x.shape)} with contiguous rows, found {found}")
    num_columns = rows.shape[-1]
    (tile,) = TILES["softcap"]
    launch(
        _softcap_kernel,
        rows.shape[0] * rows.shape[1] * triton.cdiv(num_columns, tile.columns),
        rows,
        out_rows,
        *rows.stride()[:2],
        *out_rows.stride()[:2],
        rows.shape[1],
        cap,
        order=order,
        num_warps=tile.num_warps,
        NUM_COLUMNS=num_columns,
        BLOCK=tile.columns,
    )
    return out
