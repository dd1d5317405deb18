"""What transformers is asked to load, and what is refused: nothing runs, nothing is downloaded."""

import json
import pickle
import re
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from swarepro import api
from swarepro.checkpoint import open_checkpoint, write_synthetic
from swarepro.compare.types import Tolerance
from swarepro.errors import EngineError
from swarepro.hf import load_transformers
from tests.unit.hf.models import case

pytest.importorskip("transformers", reason="the hf extra is not installed")


def load(source: Path) -> None:
    load_transformers(open_checkpoint(str(source)), dtype=torch.float32, attention="eager")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_synthetic("gemma3-tiny?layers=2", tmp_path / "model")


def edit_config(folder: Path, **fields: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_without_transformers_the_extra_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(EngineError, match="needs transformers") as caught:
        load(folder)
    assert caught.value.hint == "pip install swarepro[hf]"


def test_a_model_type_without_a_table(folder: Path) -> None:
    text = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": text}))
    with pytest.raises(EngineError, match="model type 'gemma3' has no table of modules") as caught:
        load(folder)
    assert "gemma2, gemma3_text, gemma4_text" in str(caught.value.hint)


def test_an_attention_function_without_a_softcap(tmp_path: Path) -> None:
    """transformers refuses it for Gemma 2, or, in 5.20, drops the softcap: that is found."""
    spec = case("gemma2-tiny?layers=2", chunks=(19,), decode=0)
    try:
        sdpa = api.capture_hf(spec, out=tmp_path, run_id="sdpa", attention="sdpa")
    except EngineError as error:
        said = error.message
        assert re.match("transformers cannot load synthetic:gemma2-tiny.*does not support", said)
        return
    eager = api.capture_hf(spec, out=tmp_path, run_id="eager")
    found = api.diff_runs(
        eager.bundle, sdpa.bundle, tolerance=Tolerance(atol=2e-4, rtol=1e-4)
    ).first
    assert found is not None
    assert (found.name, found.origin) == ("L0_attention_output", "source")


def test_a_tensor_that_is_missing_is_not_drawn_at_random(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(EngineError, match=r"missing keys: model.layers.1.mlp.up_proj.weight"):
        load(folder)


def test_a_tensor_that_transformers_leaves_out(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path) | {"model.layers.0.extra.weight": torch.ones(2)}
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(EngineError, match=r"unexpected keys: model.layers.0.extra.weight"):
        load(folder)


class Trap:
    """What a pickle runs when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return Path.touch, (self.path,)


def test_pickles_and_code_of_a_checkpoint_do_not_run(folder: Path, tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    pickle.loads(pickle.dumps(Trap(trap)))
    assert trap.exists()  # the control: it would
    trap.unlink()
    (folder / "modeling.py").write_text(
        f"from pathlib import Path\nPath({str(trap)!r}).touch()\n"
        "from transformers import Gemma3TextConfig as C, Gemma3ForCausalLM as M\n"
    )
    edit_config(folder, auto_map={"AutoConfig": "modeling.C", "AutoModelForCausalLM": "modeling.M"})
    load(folder)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Trap(trap)))
    with pytest.raises(EngineError, match="transformers cannot load"):
        load(folder)
    assert not trap.exists()


def test_nothing_is_written_to_the_terminal(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    edit_config(folder, torch_dtype="float16", unknown_field=3)
    load(folder)
    assert capfd.readouterr() == ("", "")
