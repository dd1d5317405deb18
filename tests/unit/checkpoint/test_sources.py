"""The string that names a checkpoint: each form, and helpful errors for what is not one."""

from pathlib import Path

import pytest

from swarepro.checkpoint import open_checkpoint, write_synthetic
from swarepro.errors import CheckpointError


def test_every_form_keeps_its_source(tmp_path: Path) -> None:
    directory = write_synthetic("gemma3-tiny?layers=6", tmp_path / "model")
    for source in ("synthetic:gemma3-tiny?layers=6", str(directory)):
        checkpoint = open_checkpoint(source)
        assert checkpoint.source == source
        assert checkpoint.config.num_layers == 6


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere", "no such checkpoint: 'nowhere'"),
        ("", "holds|no config.json|no such checkpoint"),
        ("syntetic:gemma4-tiny", "did you mean 'synthetic:'"),
        ("gguf:nowhere.gguf", "no such GGUF file: nowhere.gguf"),
        ("gguf:gemma3-270", "did you mean 'gemma3-270m'"),
        ("nowhere.gguf", "no such GGUF file"),
        ("a\0b", "a.x00b"),
    ],
)
def test_what_is_not_there(source: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        open_checkpoint(source)
    assert caught.value.hint is not None or "\0" in source


def test_the_wrong_thing(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no config.json; it holds nothing"):
        open_checkpoint(str(tmp_path))
    file = tmp_path / "weights.bin"
    file.write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"has no config.json; it holds weights.bin"):
        open_checkpoint(str(tmp_path))
    with pytest.raises(CheckpointError, match="is a file that swarepro does not read"):
        open_checkpoint(str(file))
    with pytest.raises(CheckpointError, match="is a directory; wanted a GGUF file"):
        open_checkpoint(f"gguf:{tmp_path}")
