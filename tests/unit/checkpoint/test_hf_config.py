"""config.json to ModelConfig: every variant, every refusal, and no traceback whatever it holds."""

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swarepro.checkpoint import LayerKind, ModelConfig, RopeKind, RopeSpec, parse_hf_config
from swarepro.errors import CheckpointError

Json = dict[str, Any]

GEMMA3: Json = {
    "model_type": "gemma3_text",
    "hidden_size": 96,
    "intermediate_size": 192,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "sliding_window": 32,
    "vocab_size": 512,
}
GEMMA2: Json = {**GEMMA3, "model_type": "gemma2"}
GEMMA4: Json = {
    **GEMMA3,
    "model_type": "gemma4_text",
    "hidden_size_per_layer_input": 0,
    "global_head_dim": 32,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
}
UNIFIED: Json = {**GEMMA4, "model_type": "gemma4_unified_text"}
BASES = {"gemma2": GEMMA2, "gemma3": GEMMA3, "gemma4": GEMMA4, "unified": UNIFIED}


def parse(base: Json, /, *drop: str, **changes: object) -> ModelConfig:
    data = {key: value for key, value in {**base, **changes}.items() if key not in drop}
    return parse_hf_config(json.loads(json.dumps(data)), source="config.json")


def full_layers(config: ModelConfig) -> list[int]:
    return [layer.layer for layer in config.layers if layer.kind is LayerKind.FULL]


def test_gemma3_with_old_flat_fields() -> None:
    config = parse(
        GEMMA3,
        rope_theta=2e6,
        rope_local_base_freq=2e4,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
        sliding_window_pattern=3,
        query_pre_attn_scalar=24,
    )
    assert full_layers(config) == [2, 5, 8, 11]
    sliding, full = config.layers[0], config.layers[2]
    assert (sliding.rope.kind, sliding.rope.theta) == (RopeKind.DEFAULT, 2e4)
    assert (full.rope.kind, full.rope.theta, full.rope.factor) == (RopeKind.LINEAR, 2e6, 8.0)
    assert (sliding.sliding_window, full.sliding_window) == (32, None)
    assert config.attention_scale == 24**-0.5
    assert config.embed_scale == 96**0.5
    assert config.norm_adds_one and config.tied_head
    assert not config.has_v_norm and not config.has_layer_scalar


def test_gemma3_defaults_are_those_of_transformers() -> None:
    config = parse(GEMMA3, "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size")
    assert (config.num_heads, config.vocab_size) == (8, 262_208)
    assert (config.layers[0].num_kv_heads, config.layers[0].head_dim) == (4, 256)
    assert config.attention_scale == 256**-0.5
    assert full_layers(config) == [5, 11]
    assert parse(GEMMA3, "sliding_window").layers[0].sliding_window == 4096
    assert parse(GEMMA4, "sliding_window").layers[0].sliding_window == 512
    assert parse(UNIFIED, "sliding_window").layers[0].sliding_window == 1024


def test_gemma2_defaults_are_those_of_transformers() -> None:
    config = parse(GEMMA2, "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size")
    assert (config.num_heads, config.vocab_size) == (8, 256_000)
    assert (config.layers[0].num_kv_heads, config.layers[0].head_dim) == (4, 256)
    assert (config.attention_softcap, config.final_softcap) == (50.0, 30.0)
    assert (config.attention_scale, config.max_position_embeddings) == (256**-0.5, 8192)
    assert full_layers(config) == [1, 3, 5, 7, 9, 11]
    assert parse(GEMMA2, "sliding_window").layers[0].sliding_window == 4096
    assert config.norm_adds_one and not config.has_qk_norms and not config.has_v_norm
    assert {layer.rope for layer in config.layers} == {
        RopeSpec(kind=RopeKind.DEFAULT, theta=10_000.0)
    }


def test_gemma2_says_otherwise() -> None:
    """A null cap is no cap, where a missing one is the default; a pattern is ignored."""
    none = parse(GEMMA2, attn_logit_softcapping=None, final_logit_softcapping=None)
    assert (none.attention_softcap, none.final_softcap) == (None, None)
    assert parse(GEMMA2, sliding_window_pattern=3) == parse(GEMMA2)
    kinds = ["full_attention", "sliding_attention", "sliding_attention"] * 4
    assert full_layers(parse(GEMMA2, layer_types=kinds)) == [0, 3, 6, 9]
    assert parse(GEMMA2, query_pre_attn_scalar=24).attention_scale == 24**-0.5


@pytest.mark.parametrize(
    ("fields", "kind", "theta", "factor"),
    [
        ({"rope_theta": 2e4}, "default", 2e4, 1.0),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 3e4}}, "default", 3e4, 1.0),
        ({"rope_parameters": {"rope_theta": 3e4}, "rope_theta": 2e4}, "default", 3e4, 1.0),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "linear", 1e4, 2.0),
        (
            {"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "rope_parameters": {}},
            "linear",
            1e4,
            2.0,
        ),
        ({"rope_scaling": {}, "rope_parameters": {"rope_theta": 3e4}}, "default", 3e4, 1.0),
    ],
    ids=str,
)
def test_gemma2_has_one_rope(fields: Json, kind: str, theta: float, factor: float) -> None:
    """As transformers reads the same fields, see test_hf_transformers.py."""
    ropes = {layer.rope for layer in parse(GEMMA2, **fields).layers}
    assert ropes == {RopeSpec(kind=RopeKind(kind), theta=theta, factor=factor)}


def test_gemma3_nested_rope_parameters_win_over_flat_ones() -> None:
    nested = {
        "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e6},
        "sliding_attention": {"rope_type": "default"},
    }
    config = parse(GEMMA3, rope_parameters=nested, rope_theta=1.0, rope_local_base_freq=3e4)
    assert (config.layers[5].rope.theta, config.layers[5].rope.factor) == (5e6, 4.0)
    assert config.layers[0].rope.theta == 3e4


def test_gemma4_heads_from_global_fields() -> None:
    config = parse(GEMMA4)
    sliding, full = config.layers[0], config.layers[5]
    assert (sliding.num_kv_heads, sliding.head_dim, sliding.k_eq_v) == (2, 16, False)
    assert (full.num_kv_heads, full.head_dim, full.k_eq_v) == (1, 32, True)
    assert (full.rope.kind, full.rope.partial_rotary_factor) == (RopeKind.PROPORTIONAL, 0.25)
    assert config.attention_scale == 1.0
    assert config.has_v_norm and config.has_layer_scalar and not config.norm_adds_one


def test_global_kv_heads_count_only_where_k_equals_v() -> None:
    full = parse(GEMMA4, attention_k_eq_v=False).layers[5]
    assert (full.num_kv_heads, full.head_dim, full.k_eq_v) == (2, 32, False)


@pytest.mark.parametrize(
    ("overrides", "heads"),
    [
        ({"05": {"head_dim": 64, "num_key_value_heads": 1}, "11": {"head_dim": 64}}, None),
        ({"5": {"head_dim": 64}, "11": {"head_dim": 64}}, (2, 64)),
        ({"full_attention": {"head_dim": 64, "num_key_value_heads": 4}}, (4, 64)),
        ({}, (2, 16)),
        (None, (2, 16)),
    ],
)
def test_per_layer_config_replaces_the_global_fields(
    overrides: Json | None, heads: tuple[int, int] | None
) -> None:
    if heads is None:
        with pytest.raises(CheckpointError, match="layer 11: head_dim 64 and 2 kv heads; wanted"):
            parse(GEMMA4, per_layer_config=overrides)
    else:
        full = parse(GEMMA4, per_layer_config=overrides).layers[5]
        assert (full.num_kv_heads, full.head_dim) == heads


def test_the_last_gemma4_layer_is_full() -> None:
    assert full_layers(parse(GEMMA4, num_hidden_layers=8)) == [5, 7]
    assert full_layers(parse(GEMMA3, num_hidden_layers=8)) == [5]


@pytest.mark.parametrize("family", ["gemma3", "gemma4", "gemma4_unified"])
def test_a_wrapper_holds_the_text_model(family: str) -> None:
    text = {"gemma3": GEMMA3, "gemma4": GEMMA4, "gemma4_unified": UNIFIED}[family]
    config = parse({"model_type": family, "text_config": text, "vision_config": {}})
    assert config == parse(text)
    untied = parse({"model_type": family, "text_config": text, "tie_word_embeddings": False})
    assert not untied.tied_head
    inner = {**text, "tie_word_embeddings": False}
    assert not parse({"model_type": family, "text_config": inner}).tied_head


@pytest.mark.parametrize("base", [GEMMA4, UNIFIED])
def test_vision_attention_is_accepted(base: Json) -> None:
    assert parse(base, use_bidirectional_attention="vision") == parse(base)


REFUSED: list[tuple[str, Json, str]] = [
    ("gemma4", {"enable_moe_block": True}, "enable_moe_block is True: a mixture of experts"),
    ("gemma4", {"hidden_size_per_layer_input": 256}, "hidden_size_per_layer_input is 256"),
    ("gemma4", {"num_kv_shared_layers": 4}, "num_kv_shared_layers is 4"),
    ("gemma4", {"use_bidirectional_attention": "all"}, "use_bidirectional_attention is 'all'"),
    ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention is True"),
    ("gemma3", {"use_bidirectional_attention": "vision"}, "use_bidirectional_attention is 'vis"),
    ("gemma3", {"attention_bias": True}, "attention_bias is True"),
    ("gemma4", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0"),
    ("gemma3", {"hidden_activation": "silu"}, "hidden_activation is 'silu'"),
    ("gemma3", {"quantization_config": {"bits": 4}}, r"quantization_config is \{'bits': 4\}"),
    ("gemma3", {"model_type": "gemma3_txt"}, "did you mean 'gemma3_text'"),
    ("gemma3", {"model_type": "llama"}, "known: gemma2, gemma3_text"),
    ("gemma3", {"model_type": 3}, "model_type is 3; wanted a string"),
    ("gemma3", {"hidden_size": "96"}, "hidden_size is '96'; wanted an integer"),
    ("gemma3", {"hidden_size": 96.0}, "hidden_size is 96.0; wanted an integer"),
    ("gemma3", {"hidden_size": True}, "hidden_size is True; wanted an integer"),
    ("gemma3", {"hidden_size": None}, "hidden_size is None; wanted an integer"),
    ("gemma3", {"hidden_size": 0}, "hidden_size is 0; wanted an integer from 1"),
    ("gemma3", {"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000; wanted at most"),
    ("gemma3", {"head_dim": 15}, "head_dim is 15; wanted an even number"),
    ("gemma3", {"num_key_value_heads": 3}, "num_key_value_heads is 3; wanted a divisor"),
    ("gemma3", {"rms_norm_eps": -1.0}, "rms_norm_eps is -1.0; wanted a finite number"),
    ("gemma3", {"query_pre_attn_scalar": 10**400}, "query_pre_attn_scalar is 1"),
    ("gemma3", {"final_logit_softcapping": 0}, "final_logit_softcapping is 0; wanted"),
    ("gemma3", {"sliding_window": None}, "sliding_window is None; wanted an integer"),
    ("gemma3", {"sliding_window_pattern": 0}, "sliding_window_pattern is 0"),
    ("gemma3", {"layer_types": ["full_attention"]}, "wanted a list of 12"),
    ("gemma3", {"layer_types": ["full_attention"] * 11 + ["mamba"]}, "not 'mamba'"),
    ("gemma3", {"rope_scaling": {"type": "linear", "factor": 8.0}}, "rope_scaling.type is"),
    ("gemma3", {"rope_scaling": {"rope_type": "yarn", "factor": 8.0}}, "rope_type is 'yarn'"),
    ("gemma3", {"rope_scaling": {"rope_type": "linear"}}, "factor is missing"),
    ("gemma3", {"rope_scaling": "linear"}, "rope_scaling is 'linear'; wanted an object"),
    ("gemma3", {"rope_parameters": {"rope_type": "default"}}, "rope_parameters.rope_type is"),
    ("gemma4", {"rope_scaling": {"factor": 8.0}}, "rope_scaling is"),
    ("gemma4", {"rope_parameters": {}}, "rope_parameters.sliding_attention is missing"),
    ("gemma4", {"per_layer_config": {"12": {"head_dim": 8}}}, "per_layer_config.12 is"),
    ("gemma4", {"per_layer_config": {"5": {"sliding_window": 8}}}, "5.sliding_window is 8"),
    ("gemma4", {"per_layer_config": {"5": {"skip": ["mlp"]}}}, r"5.skip is \['mlp'\]"),
    ("gemma4", {"per_layer_config": {"5": 3}}, "per_layer_config.5 is 3; wanted an object"),
    ("gemma3", {"per_layer_config": {"5": {"head_dim": 8}}}, "no differing layers in this mod"),
    ("gemma2", {"attention_bias": True}, "attention_bias is True"),
    ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention is True"),
    ("gemma2", {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "rope_type is 'yarn'"),
    (
        "gemma2",
        {"rope_parameters": {"full_attention": {"rope_theta": 1e4}}},
        "rope_parameters.full_attention is .*one rotary embedding for all layers",
    ),
    ("gemma2", {"attn_logit_softcapping": -1.0}, "attn_logit_softcapping is -1.0; wanted"),
    ("gemma2", {"per_layer_config": {"5": {"head_dim": 8}}}, "no differing layers in this mod"),
]


@pytest.mark.parametrize(("base", "change", "message"), REFUSED)
def test_refused_by_name(base: str, change: Json, message: str) -> None:
    parse(BASES[base])  # the control: without the change it parses
    with pytest.raises(CheckpointError, match=message) as caught:
        parse(BASES[base], **change)
    assert "config.json: " in str(caught.value)


@pytest.mark.parametrize(
    "field", ["model_type", "hidden_size", "intermediate_size", "num_hidden_layers"]
)
def test_a_missing_field_is_named(field: str) -> None:
    with pytest.raises(CheckpointError, match=f"{field} is missing"):
        parse(GEMMA3, field)


def test_per_layer_inputs_are_on_by_default() -> None:
    with pytest.raises(CheckpointError, match="hidden_size_per_layer_input is not set"):
        parse(GEMMA4, "hidden_size_per_layer_input")
    parse(UNIFIED, "hidden_size_per_layer_input")


def test_a_wrapper_without_its_text_model() -> None:
    with pytest.raises(CheckpointError, match="text_config is missing"):
        parse({"model_type": "gemma3"})
    with pytest.raises(CheckpointError, match=r"text_config.model_type is 'gemma3_text'"):
        parse({"model_type": "gemma4", "text_config": GEMMA3})


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats()
    | st.sampled_from(["", "full_attention", "default", "gemma3", "vision", "5"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["5", "full_attention", "rope_type", "factor", "head_dim", "x"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
FUZZED = (
    *GEMMA4,
    "layer_types",
    "per_layer_config",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "query_pre_attn_scalar",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "text_config",
    "quantization_config",
    "tie_word_embeddings",
    "rms_norm_eps",
    "sliding_window_pattern",
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    base=st.sampled_from(sorted(BASES)),
    changes=st.dictionaries(st.sampled_from(FUZZED), json_values, min_size=1, max_size=3),
    wrapped=st.booleans(),
)
def test_no_config_raises_anything_else(base: str, changes: Json, wrapped: bool) -> None:
    data = {**deepcopy(BASES[base]), **changes}
    if wrapped:
        name = str(BASES[base]["model_type"]).removesuffix("_text")
        data = {"model_type": name, "text_config": data}
    try:
        config = parse_hf_config(data, source="config.json")
    except CheckpointError as error:
        assert "config.json" in error.message
    else:
        assert config.num_layers >= 1
