"""Against transformers: configs mean what its modules do, and saved weights are equal."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from swarepro.checkpoint import LayerKind, ModelConfig, RopeKind, RopeSpec, open_checkpoint

from .conftest import Load

transformers = pytest.importorskip("transformers", reason="the hf extra is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")

TINY: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "sliding_window": 16,
}
ROPE = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
GEMMA4 = {"global_head_dim": 16, "hidden_size_per_layer_input": 0}
K_EQ_V = {**GEMMA4, "attention_k_eq_v": True, "num_global_key_value_heads": 1}

FLAT = {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma2": ("gemma2", {"query_pre_attn_scalar": 24}),
    "gemma2-rope": ("gemma2", {"rope_parameters": FLAT, "attn_logit_softcapping": None}),
    "gemma2-old-rope": ("gemma2", {"rope_scaling": {"type": "linear", "factor": 2.0}}),
    "gemma2-untied": ("gemma2", {"tie_word_embeddings": False, "final_logit_softcapping": 7.0}),
    "gemma3": ("gemma3_text", {"rope_parameters": ROPE, "query_pre_attn_scalar": 24}),
    "gemma3-pattern": ("gemma3_text", {"sliding_window_pattern": 2, "rope_theta": 5e5}),
    "gemma3-untied": ("gemma3_text", {"tie_word_embeddings": False}),
    "gemma4": ("gemma4_text", GEMMA4),
    "gemma4-k-eq-v": ("gemma4_text", {**K_EQ_V, "final_logit_softcapping": 30.0}),
    "gemma4-forced-last": ("gemma4_text", {**K_EQ_V, "num_hidden_layers": 4}),
    "gemma4-untied": ("gemma4_text", {**K_EQ_V, "tie_word_embeddings": False}),
    "unified": ("gemma4_unified_text", K_EQ_V),
}


def make_model(model_type: str, changes: dict[str, Any], *, seed: int = 0) -> Any:
    """A random model whose norms and buffers are not what they are initialised to."""
    config = transformers.AutoConfig.for_model(model_type, **{**TINY, **changes})
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config)
    for tensor in model.state_dict().values():
        tensor.normal_()
    return model


def inv_freq(rope: RopeSpec, head_dim: int) -> torch.Tensor:
    """As `RopeSpec` documents it."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    values = 1.0 / (rope.theta**exponents) / rope.factor
    if rope.kind is RopeKind.PROPORTIONAL:
        values[int(rope.partial_rotary_factor * head_dim // 2) :] = 0.0
    return values


def check_config(config: ModelConfig, model: Any) -> None:
    text = model.model
    assert config.num_layers == len(text.layers)
    assert config.final_softcap == model.config.final_logit_softcapping
    assert config.max_position_embeddings == model.config.max_position_embeddings
    assert config.rms_norm_eps == model.config.rms_norm_eps
    assert config.embed_scale == pytest.approx(float(text.embed_tokens.embed_scale))
    for layer, module in zip(config.layers, text.layers, strict=True):
        attention = module.self_attn
        assert (attention.sliding_window is None) == (layer.kind is LayerKind.FULL)
        assert attention.sliding_window == layer.sliding_window
        assert attention.head_dim == layer.head_dim
        assert attention.scaling == config.attention_scale
        assert hasattr(attention, "q_norm") == hasattr(attention, "k_norm") == config.has_qk_norms
        assert getattr(attention, "attn_logit_softcapping", None) == config.attention_softcap
        assert (attention.v_proj is None) == layer.k_eq_v
        assert attention.k_proj.weight.shape[0] == layer.num_kv_heads * layer.head_dim
        kind = "sliding_attention" if layer.kind is LayerKind.SLIDING else "full_attention"
        own = "inv_freq" if config.model_type == "gemma2" else f"{kind}_inv_freq"
        expected = getattr(text.rotary_emb, own)
        torch.testing.assert_close(inv_freq(layer.rope, layer.head_dim), expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_saved_model_loads_as_it_is(variant: str, tmp_path: Path, load: Load) -> None:
    model = make_model(*VARIANTS[variant])
    model.save_pretrained(tmp_path)
    checkpoint = open_checkpoint(str(tmp_path))
    check_config(checkpoint.config, model)
    weights = load(checkpoint, dtype=torch.float32)
    text = model.model
    for index, layer in weights.layers.items():
        module = text.layers[index]
        attention, mlp = module.self_attn, module.mlp
        projections = [attention.q_proj, attention.k_proj]
        if attention.v_proj is not None:
            projections.append(attention.v_proj)
        pairs = [
            (layer.input_norm, module.input_layernorm.weight),
            (layer.qkv, torch.cat([projection.weight for projection in projections])),
            (layer.o_proj, attention.o_proj.weight),
            (layer.post_attention_norm, module.post_attention_layernorm.weight),
            (layer.pre_feedforward_norm, module.pre_feedforward_layernorm.weight),
            (layer.post_feedforward_norm, module.post_feedforward_layernorm.weight),
            (layer.gate_up, torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])),
            (layer.down, mlp.down_proj.weight),
        ]
        assert (layer.q_norm is None) == (layer.k_norm is None) == variant.startswith("gemma2")
        if layer.q_norm is not None:
            pairs += [
                (layer.q_norm, attention.q_norm.weight),
                (layer.k_norm, attention.k_norm.weight),
            ]
        assert (layer.layer_scalar is None) == variant.startswith(("gemma2", "gemma3"))
        if layer.layer_scalar is not None:
            pairs.append((layer.layer_scalar, module.layer_scalar))
        for ours, theirs in pairs:
            assert torch.equal(ours, theirs)
            assert ours.is_contiguous()
    assert weights.embedding is not None and weights.head is not None
    assert torch.equal(weights.embedding, text.embed_tokens.weight)
    assert torch.equal(weights.head, model.lm_head.weight)
    assert (weights.head is weights.embedding) == ("untied" not in variant)
    assert weights.final_norm is not None
    assert torch.equal(weights.final_norm, text.norm.weight)


def test_an_untied_last_stage_does_without_the_embedding(tmp_path: Path, load: Load) -> None:
    def last_stage(variant: str) -> int:
        model = make_model(*VARIANTS[variant])
        model.save_pretrained(tmp_path / variant)
        checkpoint = open_checkpoint(str(tmp_path / variant))
        weights = load(checkpoint, 5, 6, embedding=False)
        assert weights.embedding is None and weights.head is not None
        return weights.bytes_read

    assert last_stage("gemma4-untied") == last_stage("gemma4-k-eq-v")


def test_another_seed_is_another_model(tmp_path: Path, load: Load) -> None:
    """The control of the test above: equality is not vacuous."""
    make_model(*VARIANTS["gemma4"]).save_pretrained(tmp_path)
    other = make_model(*VARIANTS["gemma4"], seed=1)
    weights = load(open_checkpoint(str(tmp_path)), dtype=torch.float32)
    assert not torch.equal(weights.layers[0].down, other.model.layers[0].mlp.down_proj.weight)


def test_saved_per_layer_config_is_what_is_read(tmp_path: Path) -> None:
    """save_pretrained writes per_layer_config, and neither of the fields that it came from."""
    make_model(*VARIANTS["gemma4-k-eq-v"]).save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["per_layer_config"] == {"5": {"head_dim": 16, "num_key_value_heads": 1}}
    assert "global_head_dim" not in saved


@pytest.mark.parametrize("prefix", ["", "model.language_model.", "language_model.model."])
def test_other_prefixes(prefix: str, tmp_path: Path, load: Load) -> None:
    from safetensors.torch import load_file, save_file

    make_model(*VARIANTS["gemma3-untied"]).save_pretrained(tmp_path)
    plain = load(open_checkpoint(str(tmp_path)))
    path = tmp_path / "model.safetensors"
    renamed = {
        name.replace("model.", prefix, 1) if name.startswith("model.") else name: tensor
        for name, tensor in load_file(path).items()
    }
    renamed["vision_tower.encoder.layers.0.self_attn.q_proj.weight"] = torch.ones(2)
    if prefix.startswith("language_model"):
        renamed["language_model.lm_head.weight"] = renamed.pop("lm_head.weight")
    save_file(renamed, path)
    weights = load(open_checkpoint(str(tmp_path)))
    assert torch.equal(weights.layers[5].qkv, plain.layers[5].qkv)
    assert weights.head is not None and plain.head is not None
    assert torch.equal(weights.head, plain.head)


def test_a_multimodal_gemma3(tmp_path: Path, load: Load) -> None:
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    config = transformers.Gemma3Config(
        text_config={**TINY, "rope_parameters": ROPE},
        vision_config={**vision, "num_attention_heads": 2, "image_size": 28, "patch_size": 14},
        mm_tokens_per_image=4,
    )
    model = transformers.Gemma3ForConditionalGeneration(config)
    model.save_pretrained(tmp_path)
    weights = load(open_checkpoint(str(tmp_path)), dtype=torch.float32)
    text = model.model.language_model
    assert torch.equal(weights.layers[5].down, text.layers[5].mlp.down_proj.weight)
    assert weights.head is weights.embedding


@pytest.mark.parametrize("family", ["Gemma4", "Gemma4Unified"])
def test_a_multimodal_gemma4(family: str, tmp_path: Path, load: Load) -> None:
    config = getattr(transformers, f"{family}Config")(text_config={**TINY, **K_EQ_V})
    model = getattr(transformers, f"{family}ForConditionalGeneration")(config)
    model.save_pretrained(tmp_path)
    checkpoint = open_checkpoint(str(tmp_path))
    weights = load(checkpoint, dtype=torch.float32)
    text = model.model.language_model
    assert torch.equal(weights.layers[5].down, text.layers[5].mlp.down_proj.weight)
    assert torch.equal(weights.layers[5].q_norm, text.layers[5].self_attn.q_norm.weight)
    assert checkpoint.config.layers[5].k_eq_v and weights.head is weights.embedding
