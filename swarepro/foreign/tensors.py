"""What every reader of a dump gives: names, and the tensor that lies under each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from swarepro.bundle.dtypes import DTYPES
from swarepro.bundle.schema import DigestAlgorithm
from swarepro.errors import ForeignError

Array = npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """A tensor of which only the digest was written."""

    value: str
    algorithm: DigestAlgorithm


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One tensor of a dump, not yet opened.

    Attributes:
        name: what patterns are matched against.
        shown: how errors call it: the file, and the key in it.
        dtype: safetensors' name; empty where the file holds no tensor.
        shape: of the tensor in the file.
        load: maps it, in the dtype's `DType.view`; None where there is a digest only.
        digest: of its bytes, where there is no tensor.
        tags: what else its file says of it, as text.
    """

    name: str
    shown: str
    dtype: str
    shape: tuple[int, ...]
    load: Callable[[], Array] | None = field(repr=False)
    digest: Digest | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


def map_array(
    path: Path, dtype: str, *, offset: int, shape: tuple[int, ...], order: str = "C"
) -> Array:
    """Map a read-only array of a file; ForeignError when the file has become too short.

    Args:
        path: of the file.
        dtype: safetensors' name.
        offset: of the first byte.
        shape: of the array; one without elements touches no file.
        order: ``C`` or ``F``.
    """
    view = DTYPES[dtype].view
    if 0 in shape:
        nothing = np.empty(shape, dtype=view)
        nothing.flags.writeable = False
        return nothing
    try:
        mapped = np.memmap(
            path,
            dtype=view,
            mode="r",
            offset=offset,
            shape=shape or (1,),
            order="F" if order == "F" else "C",
        )
    except (OSError, ValueError, OverflowError) as error:
        raise ForeignError(f"{path}: cannot be mapped: {error}") from None
    return np.asarray(mapped).reshape(shape, order="F" if order == "F" else "C")
