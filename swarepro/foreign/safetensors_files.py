"""safetensors files of any program: header checked as a bundle's, tensors mapped one at a time."""

from collections.abc import Iterator

import numpy as np

from swarepro.bundle.dtypes import DTYPES
from swarepro.bundle.tensorfile import map_tensor, read_header
from swarepro.errors import BundleError, ForeignError
from swarepro.foreign.listing import Listed
from swarepro.foreign.tensors import Array, Found

SUFFIXES = (".safetensors",)
MAX_HEADER_BYTES = 4 << 20
"""Of one file: enough for 30,000 tensors."""


def read_safetensors_file(listed: Listed) -> Iterator[Found]:
    """Yield the tensors of one file, under ``file:key``.

    Raises:
        ForeignError: the file is no safetensors file, or its header does not fit it.
    """
    try:
        header = read_header(listed.path, is_foreign=True, most_bytes=MAX_HEADER_BYTES)
    except BundleError as error:
        raise ForeignError(error.message, hint=error.hint) from None
    for key, entry in header.entries.items():

        def load(
            key: str = key, dtype: str = entry.dtype, shape: tuple[int, ...] = entry.shape
        ) -> Array:
            data = map_tensor(listed.path, header, key)
            return np.frombuffer(data, dtype=DTYPES[dtype].view).reshape(shape)

        yield Found(
            name=f"{listed.name}:{key}",
            shown=f"{listed.path}: {key}",
            dtype=entry.dtype,
            shape=entry.shape,
            load=load,
        )
