"""`ModelConfig` back to a config.json that transformers loads: the inverse of `hf_config`."""

from swarepro.checkpoint.config import LayerKind, ModelConfig, RopeKind, RopeSpec

_ARCHITECTURES = {
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gemma4_text": "Gemma4ForCausalLM",
    "gemma4_unified_text": "Gemma4UnifiedForCausalLM",
}
_LAYER_TYPES = {LayerKind.SLIDING: "sliding_attention", LayerKind.FULL: "full_attention"}


def dump_hf_config(config: ModelConfig, *, dtype: str) -> dict[str, object]:
    """Return the JSON object; ``dtype`` is torch's name of the weights' dtype, e.g. ``"bfloat16"``.

    A kind that no layer has (in a model that was cut short) gets the other's values.
    """
    by_kind = {layer.kind: layer for layer in config.layers}
    full = by_kind.get(LayerKind.FULL, config.layers[0])
    sliding = by_kind.get(LayerKind.SLIDING, config.layers[0])
    data: dict[str, object] = {
        "architectures": [_ARCHITECTURES[config.model_type]],
        "model_type": config.model_type,
        "dtype": dtype,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": sliding.num_kv_heads,
        "head_dim": sliding.head_dim,
        "layer_types": [_LAYER_TYPES[layer.kind] for layer in config.layers],
        "sliding_window": sliding.sliding_window or 1,
        "rope_parameters": {
            "sliding_attention": _rope(sliding.rope),
            "full_attention": _rope(full.rope),
        }
        if config.model_type != "gemma2"
        else _rope(full.rope),
        "rms_norm_eps": config.rms_norm_eps,
        "hidden_activation": "gelu_pytorch_tanh",
        "final_logit_softcapping": config.final_softcap,
        "tie_word_embeddings": config.tied_head,
        "max_position_embeddings": config.max_position_embeddings,
        "bos_token_id": 2,
        "eos_token_id": 1,
        "pad_token_id": 0,
    }
    if config.norm_adds_one:
        data["query_pre_attn_scalar"] = round(config.attention_scale**-2)
        data["attn_logit_softcapping"] = config.attention_softcap
    else:
        data["attention_k_eq_v"] = full.k_eq_v
        data["global_head_dim"] = full.head_dim
        data["num_global_key_value_heads"] = full.num_kv_heads
        data["hidden_size_per_layer_input"] = 0
        data["num_kv_shared_layers"] = 0
    return data


def _rope(rope: RopeSpec) -> dict[str, object]:
    data: dict[str, object] = {"rope_type": str(rope.kind), "rope_theta": rope.theta}
    if rope.factor != 1.0 or rope.kind is RopeKind.LINEAR:
        data["factor"] = rope.factor
    if rope.kind is RopeKind.PROPORTIONAL:
        data["partial_rotary_factor"] = rope.partial_rotary_factor
    return data
