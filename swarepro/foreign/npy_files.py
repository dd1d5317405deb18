"""npy files: header checked, no object arrays, the numbers mapped."""

import warnings
from collections.abc import Iterator
from math import prod

import numpy as np

from swarepro.bundle.dtypes import DTYPES
from swarepro.errors import ForeignError
from swarepro.foreign.listing import Listed
from swarepro.foreign.tensors import Array, Found, map_array

SUFFIXES = (".npy",)
_MAX_DIMS = 8
_NAMES = {
    dtype.view.str: name
    for name, dtype in DTYPES.items()
    if not (dtype.is_float and dtype.view.kind == "u") and name != "BOOL"
}
_NAMES["|b1"] = "BOOL"
_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def _is_extent(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 48


def read_npy_file(listed: Listed) -> Iterator[Found]:
    """Yield the one tensor of an npy file, under the file's name.

    Raises:
        ForeignError: no npy file, an array of Python objects, a dtype that has no name here, or a
            shape that the file has no room for.
    """
    path, shown = listed.path, str(listed.path)
    try:
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("error")
            version = np.lib.format.read_magic(file)
            if version not in _READERS:
                raise ValueError(f"version {version}")
            shape, is_fortran, dtype = _READERS[version](file)
            offset = file.tell()
        size = path.stat().st_size
    except OSError as error:
        raise ForeignError(f"cannot read {path}: {error.strerror or error}") from None
    except Exception as error:  # numpy parses the header as Python and raises what that raises
        raise ForeignError(f"{shown}: not an npy file: {str(error)[:200]}") from None
    if dtype.str not in _NAMES:
        what = "Python objects, which could execute anything" if dtype.hasobject else dtype.str
        raise ForeignError(f"{shown}: its dtype is {what[:80]}", hint=f"known: {' '.join(_NAMES)}")
    if len(shape) > _MAX_DIMS or not all(_is_extent(extent) for extent in shape):
        raise ForeignError(f"{shown}: shape {str(list(shape))[:80]} is no shape")
    if offset + prod(shape) * dtype.itemsize != size:
        raise ForeignError(
            f"{shown}: shape {list(shape)} of {dtype.str} takes {prod(shape) * dtype.itemsize:,}"
            f" bytes, and the file has {size - offset:,} after its header"
        )
    name = _NAMES[dtype.str]

    def load() -> Array:
        return map_array(path, name, offset=offset, shape=shape, order="F" if is_fortran else "C")

    yield Found(name=listed.name, shown=shown, dtype=name, shape=shape, load=load)
