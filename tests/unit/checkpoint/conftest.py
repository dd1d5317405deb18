"""Tiny checkpoints on disk, and ways to damage them."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from swarepro.checkpoint import Checkpoint, StageWeights, write_synthetic

Load = Callable[..., StageWeights]
EditJson = Callable[[Path, Callable[[dict[str, Any]], None]], None]


@pytest.fixture(scope="session")
def load() -> Load:
    """Load a stage on the CPU; both ends unless told otherwise, bf16."""

    def run(
        checkpoint: Checkpoint,
        start: int = 0,
        end: int | None = None,
        *,
        embedding: bool = True,
        head: bool = True,
        dtype: torch.dtype = torch.bfloat16,
    ) -> StageWeights:
        return checkpoint.load_stage(
            start,
            checkpoint.config.num_layers if end is None else end,
            embedding=embedding,
            head=head,
            dtype=dtype,
            device=torch.device("cpu"),
        )

    return run


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """gemma4-tiny, six layers, in three shards."""
    return write_synthetic("gemma4-tiny?layers=6", tmp_path / "sharded", shards=3)


@pytest.fixture
def single(tmp_path: Path) -> Path:
    """gemma3-tiny, six layers, in one file."""
    return write_synthetic("gemma3-tiny?layers=6", tmp_path / "single")


@pytest.fixture(scope="session")
def edit_json() -> EditJson:
    def run(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
        data = json.loads(path.read_text())
        change(data)
        path.write_text(json.dumps(data))

    return run


@pytest.fixture(scope="session")
def edit_header() -> EditJson:
    """Change the header of a safetensors file and leave its data alone."""

    def run(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
        raw = path.read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        header = json.loads(raw[8 : 8 + length])
        change(header)
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])

    return run
