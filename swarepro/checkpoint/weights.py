"""The weights of one stage, as the runtime uses them."""

from dataclasses import dataclass, field

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One layer; all in the run's dtype and on its device, contiguous.

    Shapes: norms ``[E]``, ``q_norm`` and ``k_norm`` ``[D]`` or None, ``qkv`` ``[(H + 2 K) D, E]``
    with q, k, v stacked in that order (``[(H + K) D, E]`` where ``k_eq_v``), ``o_proj``
    ``[E, H D]``, ``gate_up`` ``[2 F, E]`` with gate first, ``down`` ``[E, F]``, ``layer_scalar``
    ``[1]`` or None.
    """

    input_norm: torch.Tensor
    qkv: torch.Tensor
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    o_proj: torch.Tensor
    post_attention_norm: torch.Tensor
    pre_feedforward_norm: torch.Tensor
    post_feedforward_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    layer_scalar: torch.Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWeights:
    """The weights of layers ``[layer_start, layer_end)`` and of the ends that the stage owns.

    Attributes:
        layers: by global layer id.
        embedding: ``[V, E]`` on a stage with the embedding, else None.
        final_norm: ``[E]`` on a stage with the head, else None.
        head: ``[V, E]`` on a stage with the head, else None; the embedding's own tensor when tied
            and the stage has both.
        bytes_read: bytes of tensor data that were read from files (0 when generated in memory).
        header_bytes: bytes of file headers and indices that were read.
    """

    layers: dict[int, LayerWeights] = field(default_factory=dict)
    embedding: torch.Tensor | None = None
    final_norm: torch.Tensor | None = None
    head: torch.Tensor | None = None
    bytes_read: int = 0
    header_bytes: int = 0
