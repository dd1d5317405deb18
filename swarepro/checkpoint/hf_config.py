"""config.json to `ModelConfig`, with transformers' meaning and defaults.

A feature that the runtime does not have is refused by name; nothing is silently dropped.
"""

from collections.abc import Mapping

from swarepro.checkpoint.config import ModelConfig
from swarepro.checkpoint.fields import ConfigFields
from swarepro.checkpoint.hf_layers import Family, parse_layers
from swarepro.checkpoint.hf_rope import gemma3_ropes, gemma4_ropes
from swarepro.registry import did_you_mean

_GEMMA3 = Family(sliding_window=4096, is_gemma4=False)
_FAMILIES = {
    "gemma3_text": _GEMMA3,
    "gemma4_text": Family(sliding_window=512, is_gemma4=True),
    "gemma4_unified_text": Family(sliding_window=1024, is_gemma4=True),
}
_WRAPPERS = {name.removesuffix("_text"): name for name in _FAMILIES}
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
    _refuse_unsupported(fields, model_type)
    hidden_size = fields.integer("hidden_size")
    num_heads = fields.integer("num_attention_heads", 8)
    ropes = gemma4_ropes(fields) if family.is_gemma4 else gemma3_ropes(fields)
    scale = 1.0 if family.is_gemma4 else fields.number("query_pre_attn_scalar", 256.0) ** -0.5
    unified = model_type == "gemma4_unified_text"
    return ModelConfig(
        model_type=model_type,
        vocab_size=fields.integer("vocab_size", 262_144 if family.is_gemma4 else 262_208),
        hidden_size=hidden_size,
        intermediate_size=fields.integer("intermediate_size"),
        num_heads=num_heads,
        layers=parse_layers(fields, family, ropes, num_heads),
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
        norm_adds_one=not family.is_gemma4,
        has_v_norm=family.is_gemma4,
        has_layer_scalar=family.is_gemma4,
        attention_scale=scale,
        attention_softcap=fields.optional_number("attn_logit_softcapping"),
        final_softcap=fields.optional_number("final_logit_softcapping"),
        embed_scale=hidden_size**0.5,
        tied_head=tied_in.flag("tie_word_embeddings", True),
        max_position_embeddings=fields.integer(
            "max_position_embeddings", 262_144 if unified else 131_072
        ),
    )


def _refuse_unsupported(fields: ConfigFields, model_type: str) -> None:
    is_gemma4 = _FAMILIES[model_type].is_gemma4
    # Absent, the per-layer inputs of gemma4_text are on: transformers' default is 256.
    per_layer_default = 256 if model_type == "gemma4_text" else 0
    if fields.flag("enable_moe_block", False):
        raise fields.unsupported("enable_moe_block", "a mixture of experts")
    if fields.integer("hidden_size_per_layer_input", per_layer_default, minimum=0):
        raise fields.unsupported("hidden_size_per_layer_input", "per-layer inputs")
    if fields.integer("num_kv_shared_layers", 0, minimum=0):
        raise fields.unsupported("num_kv_shared_layers", "sharing of K and V between layers")
    if fields.flag("attention_bias", False):
        raise fields.unsupported("attention_bias", "a bias in the attention projections")
    if is_gemma4 and fields.is_set("attn_logit_softcapping"):
        raise fields.unsupported("attn_logit_softcapping", "an attention softcap in Gemma 4")
    bidirectional = fields.data.get("use_bidirectional_attention")
    if bidirectional not in (None, False) and not (is_gemma4 and bidirectional == "vision"):
        raise fields.unsupported("use_bidirectional_attention", "bidirectional text attention")
    activation = fields.text("hidden_activation", "gelu_pytorch_tanh")
    if activation != "gelu_pytorch_tanh":
        raise fields.unsupported("hidden_activation", f"the activation {activation!r}")
