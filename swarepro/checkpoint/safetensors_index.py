"""Which file of a Hugging Face directory holds which tensor, from headers and the index alone."""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, TypeGuard

from swarepro.errors import CheckpointError

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
_LENGTH_BYTES = 8
_LARGEST_HEADER = 100 * 2**20
_COPY_AGAIN = "the file is damaged: copy or download it again"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """One tensor of a header; ``dtype`` is safetensors' name, e.g. ``"BF16"``."""

    dtype: str
    shape: tuple[int, ...]
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """One file's header; ``num_bytes`` counts the length field too."""

    tensors: Mapping[str, TensorEntry]
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFiles:
    """The file of every tensor.

    Attributes:
        files: by tensor name.
        listing: the file that says so, for errors.
        index_bytes: size of the index that was read; 0 without one.
    """

    files: Mapping[str, Path]
    listing: Path
    index_bytes: int


def locate_tensors(directory: Path) -> TensorFiles:
    """Read the directory's index, or the header of its single file.

    Raises:
        CheckpointError: neither is there, or what is there is damaged or points outside.
    """
    single, index = directory / SINGLE_FILE, directory / INDEX_FILE
    if single.exists():
        names = read_header(single).tensors
        return TensorFiles(files=dict.fromkeys(names, single), listing=single, index_bytes=0)
    if index.exists():
        return _read_index(index)
    raise CheckpointError(
        f"{directory}: no weights; wanted {SINGLE_FILE}, or shards with {INDEX_FILE}",
        hint="swarepro reads safetensors only, not .bin or .pt files",
    )


def read_json(path: Path) -> dict[str, object]:
    """Return the JSON object in ``path``; raise CheckpointError when it is not one."""
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}", hint=_COPY_AGAIN) from None
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} holds a JSON {type(data).__name__}; wanted an object")
    return data


def _read_index(index: Path) -> TensorFiles:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict):
        raise CheckpointError(f"{index}: weight_map is {weight_map!r}; wanted an object")
    files = {}
    for name, file in weight_map.items():
        if not isinstance(file, str) or not file or "\0" in file:
            raise CheckpointError(f"{index}: tensor {name!r} is in {file!r}; wanted a file name")
        path = PurePosixPath(file)
        if path.is_absolute() or ".." in path.parts or "\\" in file:
            raise CheckpointError(
                f"{index}: tensor {name!r} is in {file!r}, outside the checkpoint's directory"
            )
        files[name] = index.parent / path
    return TensorFiles(files=files, listing=index, index_bytes=index.stat().st_size)


def read_header(path: Path) -> Header:
    """Read and check one file's header against the file's size; no tensor data is read.

    Raises:
        CheckpointError: the file is missing, cut short or corrupt.
    """
    try:
        with path.open("rb") as file:
            return _parse_header(path, file, path.stat().st_size)
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing", hint=_COPY_AGAIN) from None
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from None


def _parse_header(path: Path, file: BinaryIO, size: int) -> Header:
    prefix = file.read(_LENGTH_BYTES)
    if len(prefix) < _LENGTH_BYTES:
        raise _damaged(path, f"is cut short: {size} bytes; wanted at least {_LENGTH_BYTES}")
    (length,) = struct.unpack("<Q", prefix)
    if length > _LARGEST_HEADER:
        raise _damaged(path, f"is not a safetensors file: its header would have {length} bytes")
    start = _LENGTH_BYTES + length
    if start > size:
        raise _damaged(
            path, f"is cut short inside its header: {size} bytes; wanted {start} or more"
        )
    try:
        data = json.loads(file.read(length))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"has a corrupt header: {error}") from None
    if not isinstance(data, dict):
        raise _damaged(path, "has a corrupt header: it is not a JSON object")
    tensors, end = {}, 0
    for name, value in data.items():
        if name == "__metadata__":
            continue
        tensors[name], last = _entry(path, name, value)
        end = max(end, last)
    if start + end != size:
        problem = "is cut short" if start + end > size else "is longer than its header says"
        raise _damaged(path, f"{problem}: {size} bytes; wanted {start + end}")
    return Header(tensors=tensors, num_bytes=start)


def _entry(path: Path, name: str, value: object) -> tuple[TensorEntry, int]:
    entry = value if isinstance(value, dict) else {}
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if (
        not isinstance(dtype, str)
        or not _is_counts(shape)
        or not _is_counts(offsets)
        or len(offsets) != 2
        or offsets[0] > offsets[1]
    ):
        raise _damaged(path, f"has a corrupt header: tensor {name!r} is {value!r}")
    first, last = offsets
    return TensorEntry(dtype=dtype, shape=tuple(shape), num_bytes=last - first), last


def _is_counts(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(
        isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in value
    )


def _damaged(path: Path, problem: str) -> CheckpointError:
    return CheckpointError(f"{path} {problem}", hint=_COPY_AGAIN)
