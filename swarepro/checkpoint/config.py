"""What the runtime needs to know of a model, whatever file it came from."""

from dataclasses import dataclass
from enum import StrEnum


class LayerKind(StrEnum):
    """A layer's KV group: it sees a window of its past, or all of it."""

    SLIDING = "sliding"
    FULL = "full"


class RopeKind(StrEnum):
    """How rotary frequencies are derived; see `RopeSpec`."""

    DEFAULT = "default"
    LINEAR = "linear"
    PROPORTIONAL = "proportional"


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeSpec:
    """Rotary embedding of one layer kind.

    ``inv_freq[i] = theta ** (-2 i / head_dim) / factor``; PROPORTIONAL (Gemma 4) also sets all but
    the first ``int(partial_rotary_factor * head_dim // 2)`` to zero. ``factor`` is 1 with DEFAULT,
    ``partial_rotary_factor`` is 1 with DEFAULT and LINEAR.
    """

    kind: RopeKind
    theta: float
    factor: float = 1.0
    partial_rotary_factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerConfig:
    """One layer, by its global id.

    Attributes:
        sliding_window: tokens visible including the query itself; None on a full layer.
        k_eq_v: V is computed from K's projection; there is no V projection.
    """

    layer: int
    kind: LayerKind
    num_kv_heads: int
    head_dim: int
    sliding_window: int | None
    rope: RopeSpec
    k_eq_v: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """One dense Gemma text model.

    Attributes:
        model_type: as in config.json, e.g. ``"gemma3_text"``.
        layers: one entry per layer, in order.
        norm_adds_one: RMSNorm multiplies by ``1 + w`` (Gemma 2 and 3), not by ``w`` (Gemma 4).
        has_qk_norms: Q and K go through an RMSNorm each before rotary (Gemma 3 and 4).
        has_v_norm: V goes through an RMSNorm without weight (Gemma 4).
        has_layer_scalar: a layer's output is multiplied by a learned scalar (Gemma 4).
        attention_scale: factor of the attention scores.
        attention_softcap: ``cap * tanh(score / cap)`` on attention scores, or None.
        final_softcap: the same on logits, or None.
        embed_scale: factor of the embedding's rows, rounded to the run's dtype before it is used.
        tied_head: the logits' weight is the embedding's.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    layers: tuple[LayerConfig, ...]
    rms_norm_eps: float
    norm_adds_one: bool
    has_qk_norms: bool
    has_v_norm: bool
    has_layer_scalar: bool
    attention_scale: float
    attention_softcap: float | None
    final_softcap: float | None
    embed_scale: float
    tied_head: bool
    max_position_embeddings: int

    @property
    def images_in(self) -> frozenset[LayerKind]:
        """Layers in which the tokens of an image see each other; empty = the model has no images.

        Source: transformers' ``create_masks_for_vision_model`` of each model: Gemma 3 in all, Gemma
        4 in the sliding ones. In these the window holds for an image, too.
        """
        if self.model_type.startswith("gemma3"):
            return frozenset(LayerKind)
        if self.model_type.startswith("gemma4"):
            return frozenset((LayerKind.SLIDING,))
        return frozenset()

    @property
    def num_layers(self) -> int:
        """Number of layers of the whole model."""
        return len(self.layers)
