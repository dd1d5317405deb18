"""config.json to `ModelConfig`, with transformers' meaning and defaults.

A feature that the runtime does not have is refused by name; nothing is silently dropped.
"""

from collections.abc import Mapping

from swarepro.checkpoint.config import ModelConfig
from swarepro.checkpoint.fields import ConfigFields
from swarepro.checkpoint.hf_layers import Family, parse_layers
from swarepro.checkpoint.hf_rope import ROPES
from swarepro.registry import did_you_mean

_FAMILIES = {
    "gemma2": Family(
        pattern=2,
        vocab_size=256_000,
        sliding_window=4096,
        attention_softcap=50.0,
        final_softcap=30.0,
        max_position_embeddings=8192,
        has_qk_norms=False,
    ),
    "gemma3_text": Family(reads_pattern=True, vocab_size=262_208, sliding_window=4096),
    # Absent, the per-layer inputs of gemma4_text are on.
    "gemma4_text": Family(is_gemma4=True, sliding_window=512, per_layer_input=256),
    "gemma4_unified_text": Family(
        is_gemma4=True, sliding_window=1024, max_position_embeddings=262_144
    ),
}
_WRAPPERS = {name.removesuffix("_text"): name for name in _FAMILIES if name.endswith("_text")}
MODEL_TYPES = (*_FAMILIES, *_WRAPPERS)


def parse_hf_config(data: Mapping[str, object], *, source: str) -> ModelConfig:
    """Return the text model that a parsed config.json describes.

    Args:
        data: the JSON object; a multimodal wrapper's ``text_config`` is used.
        source: the file, for errors.

    Raises:
        CheckpointError: a missing or mistyped field, an unknown model type, or a feature that is
            not supported, each with the field's name and value.
    """
    top = ConfigFields(data, source=source)
    model_type = top.text("model_type")
    if model_type not in MODEL_TYPES:
        hint = did_you_mean(model_type, MODEL_TYPES) or f"known: {', '.join(MODEL_TYPES)}"
        raise top.error("model_type", "a dense Gemma text model", hint=hint)
    fields, tied_in = top, top
    if model_type in _WRAPPERS:
        text = top.table("text_config")
        if text is None:
            raise top.error("text_config", f"the text model of {model_type!r}")
        fields, model_type = text, _WRAPPERS[model_type]
        if text.text("model_type", model_type) != model_type:
            raise text.error("model_type", repr(model_type))
        tied_in = top if top.is_set("tie_word_embeddings") else text
    family = _FAMILIES[model_type]
    for part in (top, fields):
        if part.is_set("quantization_config"):
            raise part.unsupported("quantization_config", "a quantised checkpoint")
    _refuse_unsupported(fields, family)
    hidden_size = fields.integer("hidden_size")
    num_heads = fields.integer("num_attention_heads", 8)
    ropes = ROPES[model_type](fields)
    scale = 1.0 if family.is_gemma4 else fields.number("query_pre_attn_scalar", 256.0) ** -0.5
    return ModelConfig(
        model_type=model_type,
        vocab_size=fields.integer("vocab_size", family.vocab_size),
        hidden_size=hidden_size,
        intermediate_size=fields.integer("intermediate_size"),
        num_heads=num_heads,
        layers=parse_layers(fields, family, ropes, num_heads),
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
        norm_adds_one=not family.is_gemma4,
        has_qk_norms=family.has_qk_norms,
        has_v_norm=family.is_gemma4,
        has_layer_scalar=family.is_gemma4,
        attention_scale=scale,
        attention_softcap=fields.optional_number(
            "attn_logit_softcapping", family.attention_softcap
        ),
        final_softcap=fields.optional_number("final_logit_softcapping", family.final_softcap),
        embed_scale=hidden_size**0.5,
        tied_head=tied_in.flag("tie_word_embeddings", True),
        max_position_embeddings=fields.integer(
            "max_position_embeddings", family.max_position_embeddings
        ),
    )


def _refuse_unsupported(fields: ConfigFields, family: Family) -> None:
    if fields.flag("enable_moe_block", False):
        raise fields.unsupported("enable_moe_block", "a mixture of experts")
    if fields.integer("hidden_size_per_layer_input", family.per_layer_input, minimum=0):
        raise fields.unsupported("hidden_size_per_layer_input", "per-layer inputs")
    if fields.integer("num_kv_shared_layers", 0, minimum=0):
        raise fields.unsupported("num_kv_shared_layers", "sharing of K and V between layers")
    if fields.flag("attention_bias", False):
        raise fields.unsupported("attention_bias", "a bias in the attention projections")
    if family.is_gemma4 and fields.is_set("attn_logit_softcapping"):
        raise fields.unsupported("attn_logit_softcapping", "an attention softcap in Gemma 4")
    bidirectional = fields.data.get("use_bidirectional_attention")
    if bidirectional not in (None, False) and not (family.is_gemma4 and bidirectional == "vision"):
        raise fields.unsupported("use_bidirectional_attention", "bidirectional text attention")
    activation = fields.text("hidden_activation", "gelu_pytorch_tanh")
    if activation != "gelu_pytorch_tanh":
        raise fields.unsupported("hidden_activation", f"the activation {activation!r}")
