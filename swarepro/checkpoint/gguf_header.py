"""The header of a GGUF file: metadata and tensor directory, without the data.

The `gguf` library's own reader turns every vocabulary entry into numpy objects, eleven seconds for
Gemma's 262144 tokens; this one steps over them.
"""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from swarepro.errors import CheckpointError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING, _ARRAY = 8, 9
_LONGEST_KEPT_ARRAY = 4096
_MOST_ENTRIES = 1_000_000
_MOST_DIMENSIONS = 4
_COPY_AGAIN = "the file is damaged: copy or download it again"


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufTensor:
    """One tensor of the directory.

    Attributes:
        shape: in torch's order, slowest dimension first.
        type_id: GGML's number of the quantisation.
        offset: of its data, from the start of the file.
    """

    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """What comes before the data; arrays longer than a few thousand entries are left out.

    Attributes:
        metadata: scalars, strings and short arrays by key.
        tensors: by name.
        num_bytes: of the header, which is where the data starts.
        file_bytes: of the whole file.
    """

    metadata: Mapping[str, object]
    tensors: Mapping[str, GgufTensor]
    num_bytes: int
    file_bytes: int


def read_gguf_header(path: Path) -> GgufHeader:
    """Read the header of ``path``.

    Raises:
        CheckpointError: the file is missing, not GGUF, of an unknown version, or cut in its header.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            if file.read(len(_MAGIC)) != _MAGIC:
                raise CheckpointError(f"{path} is not a GGUF file: it does not begin with 'GGUF'")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Cursor(data, path).header(size)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from None
    except struct.error:
        raise CheckpointError(
            f"{path} is cut short: it ends at byte {size}, inside its header", hint=_COPY_AGAIN
        ) from None
    except UnicodeDecodeError:
        raise CheckpointError(f"{path} has a corrupt header", hint=_COPY_AGAIN) from None


class _Cursor:
    """A position in the header; reading past the end raises struct.error."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self._data = data
        self._path = path
        self._at = len(_MAGIC)

    def header(self, size: int) -> GgufHeader:
        version = self._number("<I")
        if version not in _VERSIONS:
            raise CheckpointError(
                f"{self._path} has GGUF version {version}; wanted one of {_VERSIONS}"
            )
        num_tensors, num_keys = self._count(), self._count()
        metadata = {}
        for _ in range(num_keys):
            key = self._string()
            metadata[key] = self._value(int(self._number("<I")))
        directory = [self._tensor() for _ in range(num_tensors)]
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 0 < alignment < 2**20:
            raise self._corrupt(f"general.alignment is {alignment!r}")
        start = -(-self._at // alignment) * alignment
        tensors = {
            name: GgufTensor(name=name, shape=shape, type_id=type_id, offset=start + offset)
            for name, shape, type_id, offset in directory
        }
        return GgufHeader(metadata=metadata, tensors=tensors, num_bytes=start, file_bytes=size)

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        num_dims = int(self._number("<I"))
        if num_dims > _MOST_DIMENSIONS:
            raise self._corrupt(f"tensor {name!r} has {num_dims} dimensions")
        dims = [int(self._number("<Q")) for _ in range(num_dims)]
        return name, tuple(reversed(dims)), int(self._number("<I")), int(self._number("<Q"))

    def _value(self, kind: int, *, in_array: bool = False) -> object:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY and not in_array:
            return self._array()
        if kind not in _SCALARS:
            raise self._corrupt(f"a metadata value has unknown type {kind}")
        return self._number(_SCALARS[kind])

    def _array(self) -> object:
        kind, length = int(self._number("<I")), int(self._number("<Q"))
        if length <= _LONGEST_KEPT_ARRAY:
            return [self._value(kind, in_array=True) for _ in range(length)]
        if kind in _SCALARS:
            self._advance(length * struct.calcsize(_SCALARS[kind]))
        elif kind == _STRING:
            for _ in range(length):
                (size,) = struct.unpack_from("<Q", self._data, self._at)
                self._advance(8 + size)
        else:
            raise self._corrupt(f"an array has unknown type {kind}")
        return None

    def _count(self) -> int:
        count = int(self._number("<Q"))
        if count > _MOST_ENTRIES:
            raise self._corrupt(f"it has {count} entries")
        return count

    def _string(self) -> str:
        size = int(self._number("<Q"))
        start = self._at
        self._advance(size)
        return self._data[start : self._at].decode("utf-8")

    def _number(self, code: str) -> int | float:
        (value,) = struct.unpack_from(code, self._data, self._at)
        self._at += struct.calcsize(code)
        number: int | float = value
        return number

    def _advance(self, size: int) -> None:
        if size > len(self._data) - self._at:
            raise struct.error
        self._at += size

    def _corrupt(self, problem: str) -> CheckpointError:
        return CheckpointError(f"{self._path} has a corrupt header: {problem}", hint=_COPY_AGAIN)
