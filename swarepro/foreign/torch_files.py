"""torch `.pt` files without torch: a zip archive that is not compressed, its tensors mapped."""

import struct
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from swarepro.bundle.dtypes import NUM_BYTES
from swarepro.errors import ForeignError
from swarepro.foreign.listing import Listed
from swarepro.foreign.tensors import Array, Found, map_array
from swarepro.foreign.torch_pickle import MAX_PICKLE_BYTES, StoredTorch, read_pickle

SUFFIXES = (".pt", ".pth")
_MAX_ENTRIES = 10_000
_MAX_NESTING = 4
_MAX_KEY = 512
_UNREADABLE = (OSError, ArithmeticError, ValueError, EOFError, struct.error, NotImplementedError)
_LOCAL = struct.Struct("<4s22xHH")
_OLD = "it is no zip archive: an old torch.save or a bare pickle, which could execute anything"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Archive:
    """Where the entries of one file lie: first byte and size, by name below its folder."""

    path: Path
    entries: dict[str, tuple[int, int]]

    def read(self, name: str, most: int) -> bytes:
        begin, size = self.entries.get(name, (0, most + 1))
        if size > most:
            raise ForeignError(f"{self.path}: it has no {name} of at most {most:,} bytes")
        try:
            with self.path.open("rb") as file:
                file.seek(begin)
                return file.read(size)
        except OSError as error:
            raise ForeignError(f"cannot read {self.path}: {error.strerror}") from None


def read_torch_file(listed: Listed) -> Iterator[Found]:
    """Yield the tensors of one `.pt` file; nothing in it is executed.

    A bare tensor, or ``{"value": tensor, ...}`` as SGLang's dumper writes it, has the file's name;
    tensors in dicts and lists have ``name:key``, nested ones ``name:key.key``. Of a file without a
    tensor it yields one `Found` without a dtype.

    Raises:
        ForeignError: no such file, damaged, or more in it than tensors and plain data.
    """
    archive = _open(listed.path)
    shown = str(listed.path)
    if archive.entries.get("byteorder") and archive.read("byteorder", 16) != b"little":
        raise ForeignError(f"{shown}: its numbers are not little-endian")
    value = read_pickle(archive.read("data.pkl", MAX_PICKLE_BYTES), shown)
    if isinstance(value, dict) and isinstance(value.get("value"), StoredTorch):
        value = value["value"]
    tensors = tuple(_tensors(value, shown))
    for key, tensor in tensors:
        yield _found(
            archive,
            tensor,
            name=f"{listed.name}:{key}" if key else listed.name,
            shown=f"{shown}: {key}" if key else shown,
        )
    if not tensors:  # an engine dumps lists and numbers, too
        yield Found(name=listed.name, shown=f"{shown} (no tensor)", dtype="", shape=(), load=None)


def _tensors(value: Any, shown: str) -> Iterator[tuple[str, StoredTorch]]:
    """Yield every tensor with its key; ForeignError where one lies too deep, or too many.

    A file may hold one list in another a thousand times over, and that one in a third: without
    such tricks there are no more items than bytes.
    """
    searched: set[int] = set()
    for number, (key, item, depth) in enumerate(_items(value, "", 0)):
        if number > MAX_PICKLE_BYTES or len(key) > _MAX_KEY:
            raise ForeignError(f"{shown}: its lists and dicts hold too much, or names too long")
        if isinstance(item, StoredTorch):
            yield key, item
        elif depth == _MAX_NESTING and _has_tensor(item, searched):
            raise ForeignError(
                f"{shown}: below {key[:80]!r} a tensor lies deeper than {_MAX_NESTING} keys",
                hint="save tensors in one dict",
            )


def _items(value: Any, key: str, depth: int) -> Iterator[tuple[str, Any, int]]:
    yield key, value, depth
    if depth < _MAX_NESTING:
        for below, item in _inside(value):
            yield from _items(item, f"{key}.{below}" if key else str(below), depth + 1)


def _inside(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list | tuple) else ()


def _has_tensor(value: Any, searched: set[int]) -> bool:
    """Return whether a tensor is anywhere inside; looks into nothing twice."""
    stack = [value]
    while stack:
        for _, item in _inside(stack.pop()):
            if isinstance(item, StoredTorch):
                return True
            if id(item) not in searched:
                searched.add(id(item))
                stack.append(item)
    return False


def _open(path: Path) -> _Archive:
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            size = path.stat().st_size
            if len(members) > _MAX_ENTRIES:
                raise ForeignError(f"{path}: {len(members):,} entries in one archive")
            entries = {}
            for member in members:
                if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
                    raise ForeignError(f"{path}: {member.filename!r} is compressed or encrypted")
                file.seek(member.header_offset)
                signature, name, extra = _LOCAL.unpack(file.read(_LOCAL.size))
                begin = member.header_offset + _LOCAL.size + name + extra
                if signature != b"PK\x03\x04" or begin + member.file_size > size:
                    raise ForeignError(f"{path}: {member.filename!r} is cut")
                entries[member.filename.partition("/")[2]] = (begin, member.file_size)
    except zipfile.BadZipFile:
        raise ForeignError(
            f"{path}: {_OLD}", hint="write it with torch.save of torch 1.6 or newer"
        ) from None
    except _UNREADABLE as error:
        raise ForeignError(f"{path}: not a torch file: {error}") from None
    return _Archive(path=path, entries=entries)


def _found(archive: _Archive, tensor: StoredTorch, *, name: str, shown: str) -> Found:
    entry = f"data/{tensor.storage}"
    if entry not in archive.entries:
        raise ForeignError(f"{shown}: its storage {tensor.storage[:40]!r} is missing")
    begin, size = archive.entries[entry]
    elements = size // NUM_BYTES[tensor.dtype]
    count = prod(tensor.shape)
    reach = tensor.offset + sum(
        (extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride, strict=True)
    )
    if count and reach >= elements:
        raise ForeignError(
            f"{shown}: shape {list(tensor.shape)} and strides {list(tensor.stride)} reach beyond"
            f" its storage of {elements:,} elements"
        )
    if count > elements:
        raise ForeignError(
            f"{shown}: shape {list(tensor.shape)} is expanded from {elements:,} elements",
            hint="save tensor.contiguous()",
        )

    def load() -> Array:
        if count == 0:
            return map_array(archive.path, tensor.dtype, offset=begin, shape=tensor.shape)
        whole = map_array(archive.path, tensor.dtype, offset=begin, shape=(elements,))
        width = NUM_BYTES[tensor.dtype]
        strides = tuple(stride * width for stride in tensor.stride)
        return np.lib.stride_tricks.as_strided(
            whole[tensor.offset :], shape=tensor.shape, strides=strides, writeable=False
        )

    return Found(name=name, shown=shown, dtype=tensor.dtype, shape=tensor.shape, load=load)
