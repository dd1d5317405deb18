"""GGUF metadata of the Gemma 3 architecture to `ModelConfig`, as llama.cpp reads it."""

from pathlib import Path

from swarepro.checkpoint.config import LayerConfig, LayerKind, ModelConfig, RopeKind, RopeSpec
from swarepro.checkpoint.fields import ConfigFields
from swarepro.checkpoint.gguf_header import GgufHeader
from swarepro.errors import CheckpointError

ARCHITECTURE = "gemma3"
_NUM_LAYERS_27B = 62  # the one size whose score factor comes from hidden / heads
_LARGEST_MODEL = 4096


def parse_gguf_config(header: GgufHeader, *, path: Path) -> ModelConfig:
    """Return the model that the header describes.

    Raises:
        CheckpointError: another architecture, a missing or mistyped key, or an unsupported feature.
    """
    general = ConfigFields(header.metadata, source=str(path))
    if general.text("general.architecture") != ARCHITECTURE:
        raise general.error("general.architecture", repr(ARCHITECTURE))
    prefix = f"{ARCHITECTURE}."
    own = {
        key.removeprefix(prefix): v for key, v in header.metadata.items() if key.startswith(prefix)
    }
    fields = ConfigFields(own, source=str(path), prefix=prefix)
    num_layers = fields.integer("block_count")
    if num_layers > _LARGEST_MODEL:
        raise fields.error("block_count", f"at most {_LARGEST_MODEL}")
    hidden_size = fields.integer("embedding_length")
    num_heads = fields.integer("attention.head_count")
    head_dim = fields.integer("attention.key_length", max(hidden_size // num_heads, 1))
    if fields.integer("attention.value_length", head_dim) != head_dim:
        raise fields.error("attention.value_length", f"the same as key_length, {head_dim}")
    if head_dim % 2:
        raise fields.error("attention.key_length", "an even number")
    num_kv_heads = fields.integer("attention.head_count_kv", num_heads)
    if num_heads % num_kv_heads:
        raise fields.error("attention.head_count_kv", f"a divisor of head_count, {num_heads}")
    window = fields.integer("attention.sliding_window")
    ropes = _ropes(fields)
    layers = tuple(
        LayerConfig(
            layer=index,
            kind=kind,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            sliding_window=window if kind is LayerKind.SLIDING else None,
            rope=ropes[kind],
            k_eq_v=False,
        )
        for index, kind in enumerate(_kinds(fields, num_layers))
    )
    scale_dim = hidden_size // num_heads if num_layers == _NUM_LAYERS_27B else head_dim
    return ModelConfig(
        model_type="gemma3_text",
        vocab_size=_vocab_size(header, path),
        hidden_size=hidden_size,
        intermediate_size=fields.integer("feed_forward_length"),
        num_heads=num_heads,
        layers=layers,
        rms_norm_eps=_float32_text(fields.number("attention.layer_norm_rms_epsilon")),
        norm_adds_one=True,
        has_qk_norms=True,
        has_v_norm=False,
        has_layer_scalar=False,
        attention_scale=scale_dim**-0.5,
        attention_softcap=fields.optional_number("attn_logit_softcapping"),
        final_softcap=fields.optional_number("final_logit_softcapping"),
        embed_scale=hidden_size**0.5,
        tied_head="output.weight" not in header.tensors,
        max_position_embeddings=fields.integer("context_length"),
    )


def _kinds(fields: ConfigFields, num_layers: int) -> list[LayerKind]:
    pattern = fields.data.get("attention.sliding_window_pattern", 6)
    if isinstance(pattern, list):
        if len(pattern) < num_layers or not all(isinstance(item, bool) for item in pattern):
            raise fields.error("attention.sliding_window_pattern", f"{num_layers} booleans")
        return [LayerKind.SLIDING if item else LayerKind.FULL for item in pattern[:num_layers]]
    period = fields.integer("attention.sliding_window_pattern", 6)
    return [
        LayerKind.SLIDING if (index + 1) % period else LayerKind.FULL for index in range(num_layers)
    ]


def _ropes(fields: ConfigFields) -> dict[LayerKind, RopeSpec]:
    """Return both ropes; only the full layers are scaled."""
    scaling = fields.text("rope.scaling.type", "none")
    old_factor = fields.optional_number("rope.scale_linear")
    if scaling not in ("none", "linear"):
        raise fields.error("rope.scaling.type", "'linear' or 'none'")
    factor = 1.0 if old_factor is None else old_factor
    if scaling == "linear":
        factor = fields.number("rope.scaling.factor")
    return {
        LayerKind.SLIDING: RopeSpec(
            kind=RopeKind.DEFAULT, theta=fields.number("rope.freq_base_swa", 10_000.0)
        ),
        LayerKind.FULL: RopeSpec(
            kind=RopeKind.DEFAULT if factor == 1.0 else RopeKind.LINEAR,
            theta=fields.number("rope.freq_base", 10_000.0),
            factor=factor,
        ),
    }


def _vocab_size(header: GgufHeader, path: Path) -> int:
    embedding = header.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        found = "missing" if embedding is None else f"of shape {list(embedding.shape)}"
        raise CheckpointError(f"{path}: tensor 'token_embd.weight' is {found}; wanted a matrix")
    return embedding.shape[0]


def _float32_text(value: float) -> float:
    """Return the short decimal that was meant: GGUF stores 1e-6 as 9.999999974752427e-07."""
    return float(f"{value:.7g}")
