"""The safetensors format, written and read here: a length, a JSON header, the raw tensors.

Doing it ourselves gives no copy of the tensors on either side, errors that name what is wrong, and
mappings of one tensor at a time. The library reads these files, and this reader the library's.
"""

import mmap
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from swarepro.bundle.dtypes import NUM_BYTES, tensor_bytes
from swarepro.errors import BundleError

MAX_HEADER_BYTES = 100 * 1024**2
_LENGTH = struct.Struct("<Q")


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One tensor in a header; offsets count from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


_HEADER = msgspec.json.Decoder(dict[str, Entry])
_ENTRY = msgspec.json.Decoder(Entry)
_FOREIGN_HEADER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_METADATA = "__metadata__"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """A tensor that waits to be written; ``data`` must not change until then."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    data: memoryview


def write_tensors(file: BinaryIO, tensors: Iterable[StoredTensor]) -> int:
    """Write one safetensors file and return its size in bytes.

    Wide dtypes come first, as in the library, so that every tensor is aligned to its elements.
    """
    ordered = sorted(tensors, key=lambda tensor: -NUM_BYTES[tensor.dtype])
    header: dict[str, Entry] = {}
    offset = 0
    for tensor in ordered:
        end = offset + tensor.data.nbytes
        header[tensor.key] = Entry(tensor.dtype, tensor.shape, (offset, end))
        offset = end
    text = msgspec.json.encode(header)
    text += b" " * (-len(text) % 8)
    file.write(_LENGTH.pack(len(text)))
    file.write(text)
    for tensor in ordered:
        file.write(tensor.data)
    return _LENGTH.size + len(text) + offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A checked header: its tensors tile the rest of the file from ``data_start`` on."""

    data_start: int
    entries: dict[str, Entry]


def read_header(
    path: Path, *, is_foreign: bool = False, most_bytes: int = MAX_HEADER_BYTES
) -> Header:
    """Read and check the header of a safetensors file.

    Args:
        path: of the file.
        is_foreign: another program wrote it, and may have added ``__metadata__``, which is left
            out.
        most_bytes: of the header.

    Raises:
        BundleError: the file is no safetensors file, or its tensors do not tile it exactly.
    """
    try:
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            length = _header_length(path, file.read(_LENGTH.size), size, most_bytes)
            text = file.read(length)
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror}") from error
    try:
        entries = _foreign_entries(text) if is_foreign else _HEADER.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BundleError(f"{path}: the header is not a safetensors header: {error}") from error
    header = Header(data_start=_LENGTH.size + length, entries=entries)
    for key, entry in entries.items():
        _check_entry(path, key, entry)
    _check_tiling(path, header, size)
    return header


def _foreign_entries(text: bytes) -> dict[str, Entry]:
    raw = _FOREIGN_HEADER.decode(text)
    raw.pop(_METADATA, None)
    return {key: _ENTRY.decode(entry) for key, entry in raw.items()}


def _header_length(path: Path, prefix: bytes, size: int, most_bytes: int) -> int:
    if len(prefix) < _LENGTH.size:
        raise BundleError(f"{path}: cut: {size} bytes are too few for a safetensors file")
    (length,) = _LENGTH.unpack(prefix)
    limit = min(most_bytes, size - _LENGTH.size)
    if length > limit:
        allows = "the file leaves room for" if limit < most_bytes else "at most are read:"
        raise BundleError(f"{path}: the header claims {length} bytes; {allows} {limit}")
    return int(length)


def _check_entry(path: Path, key: str, entry: Entry) -> None:
    if entry.dtype not in NUM_BYTES:
        raise BundleError(f"{path}: tensor {key!r} has an unknown dtype: {entry.dtype!r}")
    if entry.shape and min(entry.shape) < 0:
        raise BundleError(f"{path}: tensor {key!r} has a negative extent: {list(entry.shape)}")
    begin, end = entry.data_offsets
    wanted = tensor_bytes(entry.dtype, entry.shape)
    if begin < 0 or end - begin != wanted:
        raise BundleError(
            f"{path}: tensor {key!r} has offsets {begin}:{end};"
            f" {entry.dtype} {list(entry.shape)} takes {wanted} bytes"
        )


def _check_tiling(path: Path, header: Header, size: int) -> None:
    expected = 0
    for (begin, end), key in sorted((e.data_offsets, key) for key, e in header.entries.items()):
        if begin != expected:
            what = "overlaps the tensor before it" if begin < expected else "leaves a hole"
            raise BundleError(f"{path}: tensor {key!r} {what} at byte {begin} of the data")
        expected = end
    expected += header.data_start
    if expected != size:
        raise BundleError(f"{path}: tensors end at byte {expected}; the file has {size} bytes")


def map_tensor(
    path: Path, header: Header, key: str, *, start: int = 0, stop: int | None = None
) -> memoryview:
    """Map bytes ``[start, stop)`` of tensor ``key``; they are unmapped with the last view of them.

    Only what is mapped can become resident, so a large tensor is best walked in windows.
    """
    begin, end = (header.data_start + offset for offset in header.entries[key].data_offsets)
    if stop is not None:
        end = begin + stop
    begin += start
    if begin == end:
        return memoryview(b"")
    skip = begin % mmap.ALLOCATIONGRANULARITY
    try:
        file = os.open(path, os.O_RDONLY)
        try:
            # Reading a mapping past the end of a file that shrank kills the process.
            if os.fstat(file).st_size < end:
                raise BundleError(f"{path}: cut since the bundle was opened")
            mapped = mmap.mmap(
                file, skip + end - begin, offset=begin - skip, access=mmap.ACCESS_READ
            )
        finally:
            os.close(file)
    except OSError as error:
        raise BundleError(f"cannot map {path}: {error.strerror}") from error
    return memoryview(mapped)[skip:]
