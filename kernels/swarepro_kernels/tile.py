"""Jitted helpers that the kernels share: program ids under an order, casts, tanh.

The interpreter keeps bfloat16 as raw bits: it truncates where hardware rounds to nearest even, and
its arithmetic on the dtype is garbage. So kernels compute in float32 and cast with these helpers.
"""

import triton
import triton.language as tl

# Read when `triton.jit` decorates, as triton does itself: a process has one mode.
INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))


@triton.jit
def program_id(order_ptr: tl.tensor, HAS_ORDER: tl.constexpr) -> tl.tensor:
    """Return the id of this instance as int64: its rank, or what the order puts at its rank."""
    pid = tl.program_id(0).to(tl.int64)
    if HAS_ORDER:
        pid = tl.load(order_ptr + pid)
    return pid


@triton.jit
def widen(x: tl.tensor) -> tl.tensor:
    """Return floating-point ``x`` as float32, exactly."""
    if INTERPRETED and x.dtype == tl.bfloat16:  # its own cast gets subnormal numbers wrong
        wide = (x.to(tl.uint16, bitcast=True).to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    else:
        wide = x.to(tl.float32)
    return wide


@triton.jit
def narrow(x: tl.tensor, DTYPE: tl.constexpr) -> tl.tensor:
    """Return float32 ``x`` in the dtype, rounded to nearest even."""
    if INTERPRETED and tl.bfloat16 == DTYPE:
        bits = x.to(tl.uint32, bitcast=True)
        rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).to(tl.uint16)
        nan = tl.full(rounded.shape, 0x7FC0, tl.uint16)
        narrowed = tl.where(x == x, rounded, nan).to(tl.bfloat16, bitcast=True)
    else:
        narrowed = x.to(DTYPE)
    return narrowed


@triton.jit
def tanh(x: tl.tensor) -> tl.tensor:
    """Return the hyperbolic tangent of float32 ``x``, to about 3 units in the last place.

    ``1 - 2 / (exp(2 |x|) + 1)`` loses all relative accuracy near 0, so there an odd polynomial (a
    Chebyshev fit, 1e-9 relative on [0, 0.55]) takes over. NaN stays NaN, -0.0 stays -0.0.
    """
    size = tl.abs(x)
    square = x * x
    small = square * -0.0062726075 + 0.021070253
    small = small * square - 0.053851865
    small = small * square + 0.1333258
    small = small * square - 0.33333316
    small = x * (1.0 + square * small)
    large = 1.0 - 2.0 / (tl.exp(2.0 * size) + 1.0)
    return tl.where(size < 0.55, small, tl.where(x < 0.0, -large, large))
