"""What every source of weights offers."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from swarepro.checkpoint.config import ModelConfig
from swarepro.checkpoint.weights import StageWeights

Notify = Callable[[str], None]


class Tokenizer(Protocol):
    """Text to token ids and back."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``, with the begin-of-sequence id in front."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ``ids``, special tokens left out."""
        ...


class Checkpoint(Protocol):
    """One model's weights."""

    @property
    def source(self) -> str:
        """The string that named it, for manifests and messages."""
        ...

    @property
    def config(self) -> ModelConfig:
        """The model."""
        ...

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
        """Read the tensors of global layers ``[layer_start, layer_end)`` and of the ends asked for.

        No other tensor is read, and shapes and dtypes of all of them are checked before data is.

        Raises:
            CheckpointError: naming file, tensor, what was found and what was wanted.
        """
        ...

    def tokenizer(self, *, notify: Notify | None = None) -> Tokenizer:
        """Return the checkpoint's tokenizer; ``notify`` gets a sentence before long work.

        Raises:
            CheckpointError: it has none, or a library is missing.
        """
        ...
