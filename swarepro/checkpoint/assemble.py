"""From single tensors to the stacked weights that the runtime uses; common to all sources."""

from collections.abc import Callable, Sequence

import torch

from swarepro.checkpoint.config import ModelConfig
from swarepro.checkpoint.names import Part, WantedTensor
from swarepro.checkpoint.weights import LayerWeights, StageWeights
from swarepro.errors import CheckpointError

Fetch = Callable[[WantedTensor], torch.Tensor]


def check_range(config: ModelConfig, layer_start: int, layer_end: int, *, source: str) -> None:
    """Raise CheckpointError unless ``0 <= layer_start < layer_end <= num_layers``."""
    if not 0 <= layer_start < layer_end <= config.num_layers:
        raise CheckpointError(
            f"{source}: layers {layer_start}:{layer_end} are not a range inside the model's"
            f" {config.num_layers}"
        )


def assemble_stage(
    wanted: Sequence[WantedTensor],
    fetch: Fetch,
    *,
    embedding: bool,
    dtype: torch.dtype,
    device: torch.device,
) -> StageWeights:
    """Fetch every tensor once, in order, and stack q, k, v and gate, up.

    Args:
        wanted: from `stage_tensors`.
        fetch: returns a tensor of the wanted shape, any float dtype and device; it is copied.
        embedding: whether the stage embeds tokens, and not only ties its head to the embedding.
        dtype: of the result.
        device: of the result.

    Raises:
        CheckpointError: a finite value that ``dtype`` cannot hold.
    """
    by_layer: dict[int | None, dict[Part, WantedTensor]] = {}
    for tensor in wanted:
        by_layer.setdefault(tensor.layer, {})[tensor.part] = tensor

    def take(parts: dict[Part, WantedTensor], *names: Part) -> torch.Tensor:
        return _stack([parts[name] for name in names if name in parts], fetch, dtype, device)

    def take_if_there(parts: dict[Part, WantedTensor], name: Part) -> torch.Tensor | None:
        return take(parts, name) if name in parts else None

    layers = {
        layer: LayerWeights(
            input_norm=take(parts, Part.INPUT_NORM),
            qkv=take(parts, Part.Q, Part.K, Part.V),
            q_norm=take_if_there(parts, Part.Q_NORM),
            k_norm=take_if_there(parts, Part.K_NORM),
            o_proj=take(parts, Part.O_PROJ),
            post_attention_norm=take(parts, Part.POST_ATTENTION_NORM),
            pre_feedforward_norm=take(parts, Part.PRE_FEEDFORWARD_NORM),
            post_feedforward_norm=take(parts, Part.POST_FEEDFORWARD_NORM),
            gate_up=take(parts, Part.GATE, Part.UP),
            down=take(parts, Part.DOWN),
            layer_scalar=take_if_there(parts, Part.LAYER_SCALAR),
        )
        for layer, parts in by_layer.items()
        if layer is not None
    }
    ends = by_layer.get(None, {})
    table = take_if_there(ends, Part.EMBEDDING)
    head = None
    if Part.FINAL_NORM in ends:
        head = take(ends, Part.HEAD) if Part.HEAD in ends else table
    return StageWeights(
        layers=layers,
        embedding=table if embedding else None,
        final_norm=take_if_there(ends, Part.FINAL_NORM),
        head=head,
    )


def _stack(
    tensors: list[WantedTensor], fetch: Fetch, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """Copy the tensors below one another into memory of their own."""
    rows = sum(tensor.shape[0] for tensor in tensors)
    stacked = torch.empty((rows, *tensors[0].shape[1:]), dtype=dtype, device=device)
    start = 0
    for tensor in tensors:
        target = stacked[start : start + tensor.shape[0]]
        data = fetch(tensor)
        target.copy_(data)
        if dtype is torch.float16 and bool((target.isinf() & ~data.to(device).isinf()).any()):
            raise CheckpointError(
                f"{tensor.name}: its largest value, {data.abs().max():g}, does not fit fp16",
                hint="run in bf16 or fp32",
            )
        start += tensor.shape[0]
    return stacked
