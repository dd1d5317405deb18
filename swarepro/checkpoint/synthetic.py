"""``synthetic:NAME[?seed=N&layers=N]``: seeded models that are generated in memory."""

from dataclasses import dataclass

import torch

from swarepro.checkpoint.assemble import assemble_stage, check_range
from swarepro.checkpoint.config import ModelConfig
from swarepro.checkpoint.contract import Notify, Tokenizer
from swarepro.checkpoint.names import TensorName, WantedTensor, stage_tensors
from swarepro.checkpoint.synthetic_draw import draw_tensor
from swarepro.checkpoint.synthetic_models import (
    PLAIN_MODELS,
    SYNTHETIC_MODELS,
    weight_distribution,
)
from swarepro.checkpoint.weights import StageWeights
from swarepro.errors import CheckpointError
from swarepro.registry import did_you_mean

SCHEME = "synthetic:"
_PARAMETERS = ("seed", "layers")
_LARGEST = {"seed": 2**63 - 1, "layers": 4096}


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticCheckpoint:
    """A `Checkpoint`; make one with `open_synthetic`.

    Every tensor is drawn in bf16 from its own key, so its bytes do not depend on the stage that
    asks, nor on the run's dtype.
    """

    source: str
    name: str
    seed: int
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
        """As in `Checkpoint`; nothing is read, so ``bytes_read`` is 0."""
        check_range(self.config, layer_start, layer_end, source=self.source)
        wanted = stage_tensors(
            self.config, layer_start, layer_end, embedding=embedding, head=head, namer=_name
        )

        def fetch(tensor: WantedTensor) -> torch.Tensor:
            return self.draw(tensor, device=device)

        return assemble_stage(wanted, fetch, embedding=embedding, dtype=dtype, device=device)

    def draw(self, tensor: WantedTensor, *, device: torch.device) -> torch.Tensor:
        """Return one tensor: the wanted shape, bfloat16, contiguous, on ``device``."""
        mean, std = weight_distribution(
            self.config, tensor.part, tensor.shape, plain=self.name in PLAIN_MODELS
        )
        layer = "" if tensor.layer is None else f"{tensor.layer}."
        key = f"{self.name}/{self.seed}/{layer}{tensor.part}"
        return draw_tensor(key, tensor.shape, mean=mean, std=std, device=device)

    def tokenizer(self, *, notify: Notify | None = None) -> Tokenizer:
        """Raise CheckpointError: random weights know no language."""
        raise CheckpointError(
            f"{self.source} has no tokenizer", hint="give token ids instead of text"
        )


def open_synthetic(source: str) -> SyntheticCheckpoint:
    """Open ``synthetic:NAME[?seed=N&layers=N]``; ``layers`` cuts the model short.

    Raises:
        CheckpointError: an unknown name or parameter, with a suggestion, or a bad value.
    """
    name, _, query = source.removeprefix(SCHEME).partition("?")
    make_config = SYNTHETIC_MODELS.get(name)
    values = {"seed": 0, "layers": 0}
    for item in query.split("&") if query else ():
        key, _, value = item.partition("=")
        if key not in _PARAMETERS:
            raise CheckpointError(
                f"{source}: no such parameter: {key!r}",
                hint=did_you_mean(key, _PARAMETERS) or f"known: {', '.join(_PARAMETERS)}",
            )
        smallest = 1 if key == "layers" else 0
        is_count = value.isascii() and value.isdecimal() and len(value) < 20
        if not is_count or not smallest <= int(value) <= _LARGEST[key]:
            raise CheckpointError(
                f"{source}: {key} is {value!r}; wanted a whole number from {smallest}"
                f" to {_LARGEST[key]}"
            )
        values[key] = int(value)
    config = make_config(values["layers"] or None)
    return SyntheticCheckpoint(source=source, name=name, seed=values["seed"], config=config)


def _name(row: TensorName, layer: int | None) -> str:
    return row.part if layer is None else f"{layer}.{row.part}"
