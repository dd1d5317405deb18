"""A Hugging Face directory: config.json beside one safetensors file, or shards with an index."""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from swarepro.checkpoint.assemble import Fetch, assemble_stage, check_range
from swarepro.checkpoint.config import ModelConfig
from swarepro.checkpoint.contract import Notify, Tokenizer
from swarepro.checkpoint.hf_config import parse_hf_config
from swarepro.checkpoint.hf_names import HfNames, detect_names
from swarepro.checkpoint.names import EMBEDDING, HEAD, WantedTensor, stage_tensors, tensor_shape
from swarepro.checkpoint.safetensors_index import (
    Header,
    TensorFiles,
    locate_tensors,
    read_header,
    read_json,
)
from swarepro.checkpoint.tokenizer import load_tokenizer_json
from swarepro.checkpoint.weights import StageWeights
from swarepro.errors import CheckpointError

CONFIG_FILE = "config.json"
_DTYPE_BYTES = {"BF16": 2, "F16": 2, "F32": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class HuggingFaceDirectory:
    """A `Checkpoint`; make one with `open_directory`."""

    source: str
    directory: Path
    config: ModelConfig

    def load_stage(
        self,
        layer_start: int,
        layer_end: int,
        *,
        embedding: bool,
        head: bool,
        dtype: torch.dtype,
        device: torch.device,
    ) -> StageWeights:
        """As in `Checkpoint`: only the files that hold a needed tensor are opened."""
        check_range(self.config, layer_start, layer_end, source=self.source)
        located = locate_tensors(self.directory)
        names = detect_names(located.files, source=str(located.listing))
        wanted = stage_tensors(
            self.config, layer_start, layer_end, embedding=embedding, head=head, namer=names
        )
        second_head = self._second_head(names, located) if head else ()
        headers = _read_headers((*wanted, *second_head), located)
        for path, known in [(located.listing, located.files)] + [
            (path, header.tensors) for path, header in headers.items()
        ]:
            _refuse_unknown(path, names.unknown(known, self.config, layer_start, layer_end))
        for tensor in (*wanted, *second_head):
            _check_tensor(tensor, located.files[tensor.name], headers)
        with ExitStack() as stack:
            files = {path: stack.enter_context(_open(path)) for path in headers}

            def fetch(tensor: WantedTensor) -> torch.Tensor:
                data: torch.Tensor = files[located.files[tensor.name]].get_tensor(tensor.name)
                return data

            weights = assemble_stage(wanted, fetch, embedding=embedding, dtype=dtype, device=device)
            for tensor in second_head:
                _check_tied(tensor, wanted, fetch(tensor), fetch, located)
        read = [headers[located.files[t.name]].tensors[t.name] for t in (*wanted, *second_head)]
        return replace(
            weights,
            bytes_read=sum(entry.num_bytes for entry in read),
            header_bytes=(self.directory / CONFIG_FILE).stat().st_size
            + located.index_bytes
            + sum(header.num_bytes for header in headers.values()),
        )

    def _second_head(self, names: HfNames, located: TensorFiles) -> tuple[WantedTensor, ...]:
        """Return the head tensor that is there although the config ties it to the embedding."""
        if not self.config.tied_head or names.head not in located.files:
            return ()
        shape = tensor_shape(HEAD, self.config, None)
        return (
            WantedTensor(part=HEAD.part, layer=None, name=names.head, shape=shape, is_norm=False),
        )

    def tokenizer(self, *, notify: Notify | None = None) -> Tokenizer:
        """As in `Checkpoint`: from tokenizer.json."""
        return load_tokenizer_json(self.directory / "tokenizer.json")


def open_directory(directory: Path, *, source: str) -> HuggingFaceDirectory:
    """Open a Hugging Face directory; reads config.json only.

    Raises:
        CheckpointError: no config.json, or one that `parse_hf_config` refuses.
    """
    path = directory / CONFIG_FILE
    if not path.exists():
        found = sorted(entry.name for entry in directory.iterdir())[:5]
        raise CheckpointError(
            f"{directory} has no {CONFIG_FILE}; it holds {', '.join(found) or 'nothing'}",
            hint="name a Hugging Face model directory, or gguf:PATH for a GGUF file",
        )
    config = parse_hf_config(read_json(path), source=str(path))
    return HuggingFaceDirectory(source=source, directory=directory, config=config)


def _read_headers(wanted: Iterable[WantedTensor], located: TensorFiles) -> dict[Path, Header]:
    """Read the headers of the files that hold the wanted tensors."""
    headers: dict[Path, Header] = {}
    for tensor in wanted:
        path = located.files.get(tensor.name)
        if path is None:
            raise CheckpointError(
                f"{located.listing}: tensor {tensor.name!r} is missing; wanted shape"
                f" {list(tensor.shape)}",
                hint="the checkpoint is incomplete, or config.json belongs to another model",
            )
        if path not in headers:
            headers[path] = read_header(path)
    return headers


def _refuse_unknown(path: Path, names: list[str]) -> None:
    if names:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        raise CheckpointError(
            f"{path}: tensor {names[0]!r}{more} is not part of the model in config.json",
            hint="a feature that swarepro does not know, or config.json of another model",
        )


def _check_tensor(tensor: WantedTensor, path: Path, headers: Mapping[Path, Header]) -> None:
    entry = headers[path].tensors.get(tensor.name)
    if entry is None:
        raise CheckpointError(
            f"{path}: tensor {tensor.name!r} is not in this file, where the index puts it",
            hint="the shard belongs to another checkpoint: copy or download it again",
        )
    if entry.shape != tensor.shape:
        raise CheckpointError(
            f"{path}: tensor {tensor.name!r} has shape {list(entry.shape)};"
            f" wanted {list(tensor.shape)}",
            hint="config.json belongs to another model",
        )
    if entry.dtype not in _DTYPE_BYTES:
        raise CheckpointError(
            f"{path}: tensor {tensor.name!r} has dtype {entry.dtype};"
            f" wanted one of {', '.join(_DTYPE_BYTES)}",
            hint="quantised checkpoints are not supported, other than GGUF",
        )
    wanted_bytes = prod(tensor.shape) * _DTYPE_BYTES[entry.dtype]
    if entry.num_bytes != wanted_bytes:
        raise CheckpointError(
            f"{path}: tensor {tensor.name!r} has {entry.num_bytes} bytes; wanted {wanted_bytes}",
            hint="the file is damaged: copy or download it again",
        )


def _check_tied(
    head: WantedTensor,
    wanted: Iterable[WantedTensor],
    data: torch.Tensor,
    fetch: Fetch,
    located: TensorFiles,
) -> None:
    """Refuse a head that differs from the embedding that config.json ties it to."""
    table = next(tensor for tensor in wanted if tensor.part is EMBEDDING.part)
    if not torch.equal(data, fetch(table)):
        raise CheckpointError(
            f"{located.files[head.name]}: tensor {head.name!r} differs from {table.name!r},"
            " to which config.json ties it",
            hint="set tie_word_embeddings to false in config.json",
        )


def _open(path: Path) -> safe_open:
    try:
        return safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path} is not a readable safetensors file: {error}",
            hint="the file is damaged: copy or download it again",
        ) from None
