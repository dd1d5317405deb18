"""A GGUF file of the Gemma 3 architecture, dequantised by the `gguf` library tensor by tensor."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from math import prod
from pathlib import Path
from types import ModuleType

import numpy as np
import torch

from swarepro.checkpoint.assemble import assemble_stage, check_range
from swarepro.checkpoint.config import ModelConfig
from swarepro.checkpoint.contract import Notify, Tokenizer
from swarepro.checkpoint.gguf_config import parse_gguf_config
from swarepro.checkpoint.gguf_header import GgufHeader, GgufTensor, read_gguf_header
from swarepro.checkpoint.names import TensorName, WantedTensor, stage_tensors
from swarepro.checkpoint.tokenizer import load_gguf_tokenizer
from swarepro.checkpoint.weights import StageWeights
from swarepro.errors import CheckpointError

# Block sizes, in values and bytes, of the types that are supported: they have no surprises left.
_TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    6: ("Q5_0", 32, 22),
    8: ("Q8_0", 32, 34),
    12: ("Q4_K", 256, 144),
    14: ("Q6_K", 256, 210),
    30: ("BF16", 1, 2),
}
_VALUES_AT_ONCE = 2**18  # the fp32 intermediate stays in the processor's cache
_HARMLESS = ("token_embd.weight", "output_norm.weight", "output.weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufCheckpoint:
    """A `Checkpoint`; make one with `open_gguf`.

    GGUF holds a norm's ``1 + w``; it is turned back to ``w``, the convention of `ModelConfig`.
    """

    source: str
    path: Path
    header: GgufHeader
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
        """As in `Checkpoint`; ``bytes_read`` counts quantised bytes."""
        check_range(self.config, layer_start, layer_end, source=self.source)
        wanted = stage_tensors(
            self.config, layer_start, layer_end, embedding=embedding, head=head, namer=_name
        )
        self._refuse_unknown(layer_start, layer_end)
        num_bytes = sum(self._check(tensor) for tensor in wanted)
        quants = _import_gguf("gguf.quants")
        fetch = partial(
            _fetch,
            header=self.header,
            path=self.path,
            quants=quants,
            dtype=torch.bfloat16 if dtype is torch.bfloat16 else torch.float32,
        )
        weights = assemble_stage(wanted, fetch, embedding=embedding, dtype=dtype, device=device)
        return replace(weights, bytes_read=num_bytes, header_bytes=self.header.num_bytes)

    def _refuse_unknown(self, layer_start: int, layer_end: int) -> None:
        every = stage_tensors(
            self.config, 0, self.config.num_layers, embedding=True, head=True, namer=_name
        )
        known = {tensor.name for tensor in every}
        for name in self.header.tensors:
            layer = name.split(".")[1] if name.startswith("blk.") else ""
            is_other = layer.isdecimal() and not layer_start <= int(layer) < layer_end
            is_other = is_other and int(layer) < self.config.num_layers
            if name not in known and not is_other and name not in _HARMLESS:
                raise CheckpointError(
                    f"{self.path}: tensor {name!r} is not part of a Gemma 3 text model of"
                    f" {self.config.num_layers} layers"
                )

    def _check(self, wanted: WantedTensor) -> int:
        """Check one tensor's shape, type and place, and return its size in bytes."""
        where = f"{self.path}: tensor {wanted.name!r}"
        tensor = self.header.tensors.get(wanted.name)
        if tensor is None:
            raise CheckpointError(f"{where} is missing; wanted shape {list(wanted.shape)}")
        if tensor.shape != wanted.shape:
            raise CheckpointError(
                f"{where} has shape {list(tensor.shape)}; wanted {list(wanted.shape)}"
            )
        if tensor.type_id not in _TYPES:
            raise CheckpointError(
                f"{where} has GGML type {_type_name(tensor.type_id)};"
                f" wanted one of {', '.join(name for name, _, _ in _TYPES.values())}"
            )
        name, block, _ = _TYPES[tensor.type_id]
        if tensor.shape[-1] % block:
            raise CheckpointError(
                f"{where} has rows of {tensor.shape[-1]}; wanted a multiple of {name}'s {block}"
            )
        end = tensor.offset + _num_bytes(tensor)
        if end > self.header.file_bytes:
            raise CheckpointError(
                f"{self.path} is cut short: it has {self.header.file_bytes} bytes; tensor"
                f" {wanted.name!r} ends at {end}",
                hint="the file is damaged: copy or download it again",
            )
        return _num_bytes(tensor)

    def tokenizer(self, *, notify: Notify | None = None) -> Tokenizer:
        """As in `Checkpoint`: converted once by transformers, then from the cache."""
        return load_gguf_tokenizer(self.path, notify=notify)


def open_gguf(path: Path, *, source: str) -> GgufCheckpoint:
    """Open a GGUF file; reads its header only.

    Raises:
        CheckpointError: as `read_gguf_header` and `parse_gguf_config`, or `gguf` is not installed.
    """
    _import_gguf("gguf")
    header = read_gguf_header(path)
    config = parse_gguf_config(header, path=path)
    return GgufCheckpoint(source=source, path=path, header=header, config=config)


def _name(row: TensorName, layer: int | None) -> str:
    return row.gguf or row.hf if layer is None else f"blk.{layer}.{row.gguf}"


def _num_bytes(tensor: GgufTensor) -> int:
    _, block, block_bytes = _TYPES[tensor.type_id]
    return prod(tensor.shape) // block * block_bytes


def _fetch(
    wanted: WantedTensor,
    *,
    header: GgufHeader,
    path: Path,
    quants: ModuleType,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Dequantise one tensor in fp32, turn a norm's ``1 + w`` to ``w``, and round to ``dtype``."""
    tensor = header.tensors[wanted.name]
    values = torch.empty(tensor.shape, dtype=dtype)
    rows = values.view(-1, tensor.shape[-1])
    raw = np.fromfile(path, dtype=np.uint8, offset=tensor.offset, count=_num_bytes(tensor)).reshape(
        rows.shape[0], -1
    )
    step = max(_VALUES_AT_ONCE // tensor.shape[-1], 1)
    for start in range(0, rows.shape[0], step):
        block = _dequantise(raw[start : start + step], tensor, quants)
        rows[start : start + step].copy_(block - 1.0 if wanted.is_norm else block)
    return values


def _dequantise(
    raw: "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]", tensor: GgufTensor, quants: ModuleType
) -> torch.Tensor:
    kind = import_module("gguf").GGMLQuantizationType(tensor.type_id)
    storage = {"F32": "<f4", "F16": "<f2"}.get(kind.name)
    data = raw if storage is None else raw.view(storage)
    return torch.from_numpy(np.asarray(quants.dequantize(data, kind), dtype=np.float32))


def _type_name(type_id: int) -> str:
    kinds: Sequence[object] = [
        kind for kind in import_module("gguf").GGMLQuantizationType if kind.value == type_id
    ]
    return str(getattr(kinds[0], "name", type_id)) if kinds else str(type_id)


def _import_gguf(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError:
        raise CheckpointError(
            "reading a GGUF file needs the gguf library, which is not installed",
            hint="pip install swarepro[gguf]",
        ) from None
