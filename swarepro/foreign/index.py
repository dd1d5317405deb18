"""The index file that `swarepro export` writes: what a run was, and whose each tensor is."""

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import msgspec

from swarepro.bundle.schema import (
    ActionEntry,
    BackendEntry,
    CaptureEntry,
    OnDisk,
    StageEntry,
    StepEntry,
)
from swarepro.errors import ForeignError
from swarepro.foreign.tensors import Found

INDEX = "index.json"
_MAX_BYTES = 256 << 20


class IndexedTensor(OnDisk, frozen=True, kw_only=True):
    """One tensor of an export.

    Attributes:
        file: name of its file, without the ending.
        key: in the file.
        step: of the run.
        stage: that emitted it.
        session: whose rows these are.
    """

    file: str
    key: str
    step: int
    stage: int
    session: int


class Index(OnDisk, frozen=True, kw_only=True):
    """The whole file; fields as in `swarepro.bundle.schema.Manifest`.

    Attributes:
        left_out: records of which the run had stored a digest only.
        tensors: all that were exported, in execution order.
    """

    format: Literal["swarepro-export/1"] = "swarepro-export/1"
    model: str
    num_layers: int
    steps: tuple[StepEntry, ...]
    stages: tuple[StageEntry, ...]
    capture: CaptureEntry
    backend: BackendEntry
    faults: tuple[str, ...]
    prompts: tuple[tuple[int, ...], ...]
    tokens: tuple[tuple[int, ...], ...]
    final_actions: tuple[ActionEntry, ...]
    left_out: int
    tensors: tuple[IndexedTensor, ...]


_DECODER = msgspec.json.Decoder(Index)


def read_index(source: Path) -> Index:
    """Read the index of an exported folder; ForeignError when it is missing or no index."""
    path = source / INDEX
    try:
        if not path.resolve().is_relative_to(source.resolve()) or not path.is_file():
            raise ForeignError(
                f"{path} is missing or no file of the folder",
                hint="a map with names = 'index' reads what `swarepro export` wrote",
            )
        if path.stat().st_size > _MAX_BYTES:
            raise ForeignError(f"{path} is larger than {_MAX_BYTES:,} bytes")
        return _DECODER.decode(path.read_bytes())
    except OSError as error:
        raise ForeignError(f"cannot read {path}: {error.strerror or error}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ForeignError(f"{path}: not an index: {error}") from None


def with_index(found: tuple[Found, ...], index: Index, source: Path) -> tuple[Found, ...]:
    """Give every tensor the step, stage and session that the index says.

    Raises:
        ForeignError: the index and the files do not name the same tensors, or a tensor is of a
            step or session that did not run.
    """
    ran = {(step.index, span.session) for step in index.steps for span in step.spans}
    for entry in index.tensors:
        if (entry.step, entry.session) not in ran:
            raise ForeignError(
                f"{source / INDEX}: {entry.key} of {entry.file} is of session {entry.session} in"
                f" step {entry.step}, which no step of the index ran",
                hint="export the bundle again; the index is not what `swarepro export` wrote",
            )
    tags = {
        f"{entry.file}:{entry.key}": {
            "step": str(entry.step),
            "stage": str(entry.stage),
            "session": str(entry.session),
        }
        for entry in index.tensors
    }
    if len(tags) != len(index.tensors):
        raise ForeignError(f"{source / INDEX} lists a tensor twice")
    for item in found:
        if item.name not in tags:
            raise ForeignError(f"{item.shown} is not in {INDEX}")
    if len(found) != len(tags):
        there = {item.name for item in found}
        lacking = next(name for name in tags if name not in there)
        raise ForeignError(f"{source} lacks {lacking}, which {INDEX} lists")
    return tuple(replace(item, tags=MappingProxyType(tags[item.name])) for item in found)
