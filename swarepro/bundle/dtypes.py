"""The dtypes that a bundle stores, by safetensors' names, and the numpy views that hold their bits.

numpy has no bfloat16 and no float8: those are viewed as unsigned integers of the same width.
"""

from dataclasses import dataclass
from math import prod

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class DType:
    """One dtype.

    Attributes:
        name: safetensors' name, e.g. ``BF16``.
        view: numpy dtype that holds the bits (little-endian).
        bits: the unsigned integer of the same width.
        is_float: whether values are floating point (also where ``view`` is an integer).
        mantissa_bits: explicit mantissa bits of a float; 0 for others.
    """

    name: str
    view: np.dtype[np.generic]
    bits: np.dtype[np.generic]
    is_float: bool
    mantissa_bits: int

    @property
    def num_bytes(self) -> int:
        """Size of one element."""
        return self.view.itemsize


def _dtype(name: str, view: str, *, mantissa_bits: int = 0) -> tuple[str, DType]:
    viewed = np.dtype(view)
    return name, DType(
        name=name,
        view=viewed,
        bits=np.dtype(f"<u{viewed.itemsize}"),
        is_float=mantissa_bits > 0,
        mantissa_bits=mantissa_bits,
    )


DTYPES: dict[str, DType] = dict(
    (
        _dtype("F64", "<f8", mantissa_bits=52),
        _dtype("F32", "<f4", mantissa_bits=23),
        _dtype("F16", "<f2", mantissa_bits=10),
        _dtype("BF16", "<u2", mantissa_bits=7),
        _dtype("F8_E4M3", "<u1", mantissa_bits=3),
        _dtype("F8_E5M2", "<u1", mantissa_bits=2),
        _dtype("I64", "<i8"),
        _dtype("I32", "<i4"),
        _dtype("I16", "<i2"),
        _dtype("I8", "<i1"),
        _dtype("U64", "<u8"),
        _dtype("U32", "<u4"),
        _dtype("U16", "<u2"),
        _dtype("U8", "<u1"),
        _dtype("BOOL", "<u1"),
    )
)
"""Every dtype that may appear in a record."""

NUM_BYTES: dict[str, int] = {name: dtype.num_bytes for name, dtype in DTYPES.items()}
"""Bytes of one element, by name."""


def tensor_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    """Return the size of a tensor's raw data; KeyError for a dtype that is not in `DTYPES`."""
    return NUM_BYTES[dtype] * prod(shape)
