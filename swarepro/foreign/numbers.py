"""Arithmetic on the views of `swarepro.bundle.dtypes`: numpy has no bfloat16."""

import numpy as np
import numpy.typing as npt

from swarepro.bundle.dtypes import DTYPES
from swarepro.errors import ForeignError
from swarepro.foreign.tensors import Array

_ADDED = ("F64", "F32", "F16", "BF16")


def add(left: Array, right: Array, dtype: str) -> Array:
    """Return the sum, rounded once from float32 (or float64) to nearest, ties to even.

    That is what torch does for two tensors of one dtype, and an engine's fused residual add.

    Args:
        left: in the view of ``dtype``.
        right: of the same shape.
        dtype: safetensors' name.

    Raises:
        ForeignError: the dtype cannot be added.
    """
    if dtype not in _ADDED:
        raise ForeignError(f"tensors of dtype {dtype} are not added, only {' '.join(_ADDED)}")
    with np.errstate(all="ignore"):  # infinities and NaN of the dump stay what they are
        if dtype == "F64":
            return np.asarray(left.view(np.float64) + right.view(np.float64))
        total = to_float32(left, dtype) + to_float32(right, dtype)
        if dtype == "BF16":
            return _to_bfloat16(total)
        return total.astype(DTYPES[dtype].view)


def to_float32(array: Array, dtype: str) -> npt.NDArray[np.float32]:
    """Return the values of a float tensor as float32; exact but for ``F64``."""
    if dtype == "BF16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(all="ignore"):
        return array.astype(np.float32)


def _to_bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16
    return np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype(np.uint16)
