"""RMS normalisation, with the residual add that follows it in a Gemma layer."""

import torch
import triton
import triton.language as tl

from swarepro_kernels.launch import as_rows, check_float, launch, tile_for
from swarepro_kernels.order import ProgramOrder
from swarepro_kernels.tile import narrow, program_id, widen


@triton.jit
def _rms_norm_kernel(
    x_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    residual_ptr: tl.tensor,
    out_ptr: tl.tensor,
    x_outer_stride: tl.tensor,
    x_inner_stride: tl.tensor,
    residual_outer_stride: tl.tensor,
    residual_inner_stride: tl.tensor,
    num_rows: tl.tensor,
    num_inner: tl.tensor,
    eps: tl.tensor,
    order_ptr: tl.tensor,
    NUM_COLUMNS: tl.constexpr,
    HAS_WEIGHT: tl.constexpr,
    ADDS_ONE: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    HAS_ORDER: tl.constexpr,
) -> None:
    row = program_id(order_ptr, HAS_ORDER) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    outer = row // num_inner
    inner = row % num_inner
    column = tl.arange(0, BLOCK_COLUMNS)[None, :]
    exists = (row < num_rows)[:, None] & (column < NUM_COLUMNS)
    at = (outer * x_outer_stride + inner * x_inner_stride)[:, None] + column
    x = widen(tl.load(x_ptr + at, mask=exists, other=0.0))
    mean = tl.sum(x * x, axis=1) / NUM_COLUMNS
    normed = x * tl.rsqrt(mean + eps)[:, None]
    if HAS_WEIGHT:
        weight = widen(tl.load(weight_ptr + column, mask=column < NUM_COLUMNS, other=0.0))
        if ADDS_ONE:
            weight = weight + 1.0
        normed = normed * weight
    out = narrow(normed, out_ptr.dtype.element_ty)
    if HAS_RESIDUAL:  # two roundings: the normed value's own, then the sum's
        at = (outer * residual_outer_stride + inner * residual_inner_stride)[:, None] + column
        residual = widen(tl.load(residual_ptr + at, mask=exists, other=0.0))
        out = narrow(residual + widen(out), out_ptr.dtype.element_ty)
    tl.store(out_ptr + row[:, None] * NUM_COLUMNS + column, out, mask=exists)


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    *,
    eps: float,
    adds_one: bool,
    residual: torch.Tensor | None = None,
    order: ProgramOrder | None = None,
) -> torch.Tensor:
    """Return ``x / sqrt(mean(x^2) + eps) * w`` over the last dimension, plus a residual.

    Arithmetic is float32; the normed value is rounded to x's dtype before it is added, so the
    fused add gives the bits of the two steps.

    Args:
        x: ``[..., N]``; a view with contiguous rows, as of a fused projection, is read in place.
        weight: ``[N]``, any of the three dtypes, or None.
        eps: added to the mean square.
        adds_one: scale by ``1 + w`` (Gemma 3), summed in float32, and not by ``w`` (Gemma 4).
        residual: x's shape and dtype, or None.
        order: see `ProgramOrder`.

    Returns:
        New contiguous tensor of x's shape and dtype.

    Raises:
        ValueError: shapes, dtypes or devices are not as stated, or N > 32768.
    """
    check_float("rms_norm", x=x, residual=residual)
    num_columns = x.shape[-1]
    if residual is not None and residual.shape != x.shape:
        found = f"{tuple(residual.shape)} for {tuple(x.shape)}"
        raise ValueError(f"rms_norm: a residual of x's shape wanted, found {found}")
    if weight is not None:
        check_float("rms_norm", weight=weight)
        if weight.shape != (num_columns,) or weight.device != x.device:
            found = f"{tuple(weight.shape)} on {weight.device}"
            raise ValueError(f"rms_norm: weight [{num_columns}] on {x.device}, found {found}")
        weight = weight.contiguous()
    tile = tile_for("rms_norm", num_columns)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rows = as_rows(x)
    added = rows if residual is None else as_rows(residual)
    num_rows = rows.shape[0] * rows.shape[1]
    launch(
        _rms_norm_kernel,
        triton.cdiv(num_rows, tile.rows),
        rows,
        x if weight is None else weight,
        added,
        out,
        *rows.stride()[:2],
        *added.stride()[:2],
        num_rows,
        rows.shape[1],
        eps,
        order=order,
        num_warps=tile.num_warps,
        NUM_COLUMNS=num_columns,
        HAS_WEIGHT=weight is not None,
        ADDS_ONE=adds_one,
        HAS_RESIDUAL=residual is not None,
        BLOCK_ROWS=tile.rows,
        BLOCK_COLUMNS=tile.columns,
    )
    return out
