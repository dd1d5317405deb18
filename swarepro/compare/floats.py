"""What the bits of a float mean: values in float64, order in ULPs, and which are not finite.

All of it works on the integer or native views of `swarepro.bundle.dtypes`, so that bfloat16 and
float8 need no library that has them.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from swarepro.bundle.dtypes import DType

Array = npt.NDArray[np.generic]


def bits(view: Array, dtype: DType) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Return ``view`` as unsigned integers of the same width; no copy."""
    return view.view(dtype.bits)


def to_float64(view: Array, dtype: DType) -> npt.NDArray[np.float64]:
    """Return the values: exact for every float and for integers up to 2**53."""
    if dtype.name == "F8_E4M3":
        return _e4m3_to_float64(view)
    if dtype.name == "BF16":
        view = (view.astype(np.uint32) << 16).view(np.float32)
    elif dtype.name == "F8_E5M2":  # the upper byte of a float16
        view = (view.astype(np.uint16) << 8).view(np.float16)
    with np.errstate(invalid="ignore"):  # numpy warns of a signalling NaN
        return view.astype(np.float64)


def _e4m3_to_float64(view: Array) -> npt.NDArray[np.float64]:
    """OCP E4M3: bias 7, no infinities, NaN only where all seven low bits are set."""
    code = view.astype(np.int64)
    exponent, mantissa = (code >> 3) & 15, code & 7
    normal = np.ldexp(1.0 + mantissa / 8.0, exponent - 7)
    values = np.where(exponent == 0, np.ldexp(mantissa / 8.0, -6), normal)
    values = np.where(code & 127 == 127, np.nan, values)
    return np.where(code & 128, -values, values).astype(np.float64)


def is_nonfinite(view: Array, dtype: DType) -> npt.NDArray[np.bool_]:
    """Return where values are NaN or infinite; nowhere for integers."""
    if not dtype.is_float:
        return np.zeros(view.shape, dtype=np.bool_)
    raw = bits(view, dtype)
    if dtype.name == "F8_E4M3":
        return np.asarray((raw & raw.dtype.type(127)) == 127)
    exponent = raw.dtype.type(exponent_mask(dtype))
    return np.asarray((raw & exponent) == exponent)


def exponent_mask(dtype: DType) -> int:
    """Return the bits of a float that hold its exponent."""
    sign = 1 << (8 * dtype.num_bytes - 1)
    return int(sign - (1 << dtype.mantissa_bits))


def ulp_distance(baseline: Array, target: Array, dtype: DType) -> npt.NDArray[np.uint64]:
    """Return how many representable values lie between each pair.

    Neighbouring floats are 1 apart and both zeros are one value: ``-0.0`` and ``0.0`` are 0 apart,
    although their bytes differ. Without meaning where either is NaN or infinite.
    """
    ordered_baseline, ordered_target = _ordered(baseline, dtype), _ordered(target, dtype)
    if dtype.num_bytes <= 2:
        return np.asarray(np.abs(ordered_baseline - ordered_target)).astype(np.uint64)
    high = np.maximum(ordered_baseline, ordered_target).view(np.uint64)
    low = np.minimum(ordered_baseline, ordered_target).view(np.uint64)
    # Two's complement: the difference of 64-bit integers is right modulo 2**64, and it fits.
    distance: npt.NDArray[np.uint64] = high - low
    return distance


def _ordered(view: Array, dtype: DType) -> npt.NDArray[np.signedinteger[Any]]:
    """Map floats to integers of the same order: sign and magnitude to two's complement."""
    sign = 1 << (8 * dtype.num_bytes - 1)
    if dtype.num_bytes <= 2:
        small = bits(view, dtype).astype(np.int32)
        return np.where(small >= sign, sign - small, small)
    raw = bits(view, dtype).astype(np.uint64)
    magnitude = (raw & np.uint64(sign - 1)).view(np.int64)
    return np.where(raw & np.uint64(sign), -magnitude, magnitude)
