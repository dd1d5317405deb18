"""Synthetic models: the same bytes everywhere, whatever stage asks for them."""

import pytest
import torch
import xxhash

from swarepro.checkpoint import LayerKind, RopeKind, open_checkpoint
from swarepro.checkpoint.synthetic import SyntheticCheckpoint, open_synthetic
from swarepro.checkpoint.synthetic_draw import LARGEST_FULL_DRAW, draw_tensor
from swarepro.errors import CheckpointError

from .conftest import Load

CPU = torch.device("cpu")


def digest(tensor: torch.Tensor) -> str:
    return str(xxhash.xxh3_128_hexdigest(tensor.contiguous().view(torch.uint8).numpy()))


GOLDEN = {
    ("synthetic:gemma4-tiny", "qkv"): "502a60b94478bce13970ed225de98cfc",
    ("synthetic:gemma4-tiny", "layer_scalar"): "37d3fac43e73e353be4074875e255ddc",
    ("synthetic:gemma4-tiny?seed=1", "qkv"): "7c8bde44c425f2aa0785c6414d0c762c",
    ("synthetic:gemma3-tiny", "qkv"): "2076aa446033ec2487b28484a2c93f2a",
    ("synthetic:gemma3-tiny", "post_attention_norm"): "d32cdd64aeeecec2d1837b3d6cabc5fd",
}


@pytest.mark.parametrize(("source", "field"), GOLDEN)
def test_bytes_are_pinned(source: str, field: str, load: Load) -> None:
    weights = load(open_checkpoint(source), 5, 6)
    assert digest(getattr(weights.layers[5], field)) == GOLDEN[source, field]


def test_embedding_and_tiled_bytes_are_pinned(load: Load) -> None:
    embedding = load(open_checkpoint("synthetic:gemma4-tiny"), 0, 1).embedding
    assert embedding is not None
    assert digest(embedding) == "8131fb98287740d0bebd93e007eb6e23"
    rows = LARGEST_FULL_DRAW // 64 + 1
    tiled = draw_tensor("tiled", (rows, 64), mean=0.0, std=1.0, device=CPU)
    assert digest(tiled) == "0c547eb2b404af4849471ac33e2ef428"


@pytest.mark.parametrize("name", ["gemma4-tiny", "gemma3-tiny", "gemma2-tiny"])
def test_stages_and_dtypes_do_not_change_bytes(name: str, load: Load) -> None:
    checkpoint = open_checkpoint(f"synthetic:{name}")
    whole = load(checkpoint)
    part = load(checkpoint, 4, 8, embedding=False, head=False)
    wide = load(checkpoint, 4, 8, dtype=torch.float32)
    cut = load(open_checkpoint(f"synthetic:{name}?layers=8"), 4, 6)
    for field in whole.layers[5].__slots__:
        reference = getattr(whole.layers[5], field)
        if reference is None:
            continue
        assert torch.equal(getattr(part.layers[5], field), reference)
        assert torch.equal(getattr(wide.layers[5], field), reference.float())
        assert torch.equal(getattr(cut.layers[5], field), reference)
    other = load(open_checkpoint(f"synthetic:{name}?seed=1"), 5, 6)
    assert not torch.equal(other.layers[5].qkv, whole.layers[5].qkv)
    assert not torch.equal(whole.layers[4].down, whole.layers[5].down)
    assert whole.bytes_read == 0 and whole.head is whole.embedding


def test_gemma4_tiny_is_what_the_issue_says() -> None:
    config = open_checkpoint("synthetic:gemma4-tiny").config
    full = [layer for layer in config.layers if layer.kind is LayerKind.FULL]
    assert [layer.layer for layer in full] == [5, 11]
    assert config.num_layers == 12 and config.hidden_size == 96 and config.final_softcap == 30.0
    assert all(layer.k_eq_v and layer.head_dim == 32 for layer in full)
    assert config.layers[0].sliding_window == 32 and config.layers[0].head_dim == 16
    assert full[0].rope.kind is RopeKind.PROPORTIONAL


def test_gemma3_tiny_hides_nothing() -> None:
    config = open_checkpoint("synthetic:gemma3-tiny").config
    assert config.attention_scale != config.layers[0].head_dim ** -0.5
    assert config.layers[5].rope.factor == 8.0 and config.norm_adds_one


def test_gemma2_tiny_hides_nothing() -> None:
    config = open_checkpoint("synthetic:gemma2-tiny").config
    assert config.attention_scale != config.layers[0].head_dim ** -0.5
    assert (config.attention_softcap, config.final_softcap) == (50.0, 30.0)
    kinds = [layer.kind for layer in config.layers]
    assert kinds == [LayerKind.SLIDING, LayerKind.FULL] * 6
    assert config.norm_adds_one and not config.has_qk_norms


def test_gemma3_plain_hides_what_it_is_there_to_hide(load: Load) -> None:
    checkpoint = open_checkpoint("synthetic:gemma3-plain?layers=6")
    config = checkpoint.config
    assert (config.hidden_size, config.embed_scale) == (64, 8.0)
    assert config.attention_scale == config.layers[0].head_dim ** -0.5
    weights = load(checkpoint)
    for layer in weights.layers.values():
        norms = (
            *(layer.input_norm, layer.q_norm, layer.k_norm, layer.post_attention_norm),
            *(layer.pre_feedforward_norm, layer.post_feedforward_norm),
        )
        assert not any(norm.any() for norm in norms)
        assert layer.qkv.any() and layer.down.any()
    assert weights.final_norm is not None and not weights.final_norm.any()


def test_gemma_4_12b_geometry() -> None:
    config = open_checkpoint("synthetic:gemma-4-12b").config
    assert (config.num_layers, config.hidden_size, config.vocab_size) == (48, 3840, 262_144)
    sliding, full = config.layers[0], config.layers[5]
    assert (sliding.num_kv_heads, sliding.head_dim, sliding.sliding_window) == (8, 256, 1024)
    assert (full.num_kv_heads, full.head_dim, full.k_eq_v) == (1, 512, True)
    cut = open_checkpoint("synthetic:gemma-4-12b?layers=16").config
    assert cut.num_layers == 16 and cut.layers[15].kind is LayerKind.FULL


@pytest.mark.parametrize("name", ["gemma4-tiny", "gemma3-tiny", "gemma2-tiny"])
def test_weights_are_sane(name: str, load: Load) -> None:
    """Norm weights and scalars are not what they would be initialised to; matrices keep scale."""
    weights = load(open_checkpoint(f"synthetic:{name}"), dtype=torch.float32)
    neutral = 1.0 if name.startswith("gemma4") else 0.0
    for layer in weights.layers.values():
        norms = (layer.input_norm, layer.q_norm, layer.k_norm, layer.post_feedforward_norm)
        assert (layer.q_norm is None) == (layer.k_norm is None) == name.startswith("gemma2")
        for norm in norms:
            assert norm is None or ((norm - neutral).abs() > 1e-3).float().mean() > 0.9
        if layer.layer_scalar is not None:
            assert 0.5 < layer.layer_scalar.item() < 1.2 and layer.layer_scalar.item() != 1.0
        assert layer.down.std().item() == pytest.approx(192**-0.5, rel=0.05)
        assert abs(layer.down.mean().item()) < 0.01
    assert weights.embedding is not None and weights.embedding.isfinite().all()


def test_a_draw_has_the_mean_and_deviation_asked_for() -> None:
    values = draw_tensor("k", (200_000,), mean=2.0, std=0.5, device=CPU).float()
    assert values.mean().item() == pytest.approx(2.0, abs=0.01)
    assert values.std().item() == pytest.approx(0.5, abs=0.01)


def test_tiled_rows_differ() -> None:
    rows = LARGEST_FULL_DRAW // 64 + 1
    tiled = draw_tensor("k", (rows, 64), mean=0.0, std=1.0, device=CPU)
    assert tiled.is_contiguous()
    assert torch.unique(tiled.view(torch.int16), dim=0).shape[0] == rows
    assert tiled.float().std().item() == pytest.approx(1.0, abs=0.02)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("rows", [64, LARGEST_FULL_DRAW // 64 + 1])
def test_a_gpu_draws_the_same_bytes(rows: int) -> None:
    on_gpu = draw_tensor("k", (rows, 64), mean=0.1, std=1.0, device=torch.device("cuda"))
    assert torch.equal(on_gpu.cpu(), draw_tensor("k", (rows, 64), mean=0.1, std=1.0, device=CPU))


@pytest.mark.slow
def test_a_big_layer_can_be_made(load: Load) -> None:
    weights = load(open_checkpoint("synthetic:gemma-4-12b"), 5, 6, embedding=False, head=False)
    assert weights.layers[5].gate_up.shape == (2 * 15_360, 3840)
    assert weights.layers[5].qkv.shape == (16 * 512 + 512, 3840)


@pytest.mark.parametrize(
    ("source", "message", "hint"),
    [
        ("synthetic:gemma4-tny", "no such synthetic model: 'gemma4-tny'", "gemma4-tiny"),
        ("synthetic:", "no such synthetic model: ''", "known: gemma4-tiny"),
        ("synthetic:gemma4-tiny?sed=1", "no such parameter: 'sed'", "did you mean 'seed'"),
        ("synthetic:gemma4-tiny?seed=x", "seed is 'x'; wanted a whole number from 0", None),
        ("synthetic:gemma4-tiny?seed=-1", "seed is '-1'; wanted", None),
        ("synthetic:gemma4-tiny?seed=", "seed is ''; wanted", None),
        ("synthetic:gemma4-tiny?layers=0", "layers is '0'; wanted a whole number from 1", None),
        ("synthetic:gemma4-tiny?layers=99999", "layers is '99999'; wanted", None),
    ],
)
def test_a_bad_name_is_refused(source: str, message: str, hint: str | None) -> None:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(source)
    assert message in caught.value.message
    assert hint is None or hint in str(caught.value.hint)


def test_there_is_no_tokenizer() -> None:
    with pytest.raises(CheckpointError, match="has no tokenizer"):
        open_checkpoint("synthetic:gemma4-tiny").tokenizer()


def test_seed_zero_is_the_default() -> None:
    plain, seeded = open_synthetic("synthetic:gemma4-tiny"), open_synthetic("gemma4-tiny?seed=0")
    assert isinstance(plain, SyntheticCheckpoint)
    assert (plain.name, plain.seed, plain.config) == (seeded.name, seeded.seed, seeded.config)
