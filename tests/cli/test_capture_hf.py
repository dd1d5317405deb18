"""`swarepro capture-hf`: a bundle that the other commands take."""

from pathlib import Path

import pytest

from swarepro.checkpoint import write_synthetic
from tests.cli.conftest import Invoke

pytest.importorskip("transformers", reason="the hf extra is not installed")


def test_a_directory_against_our_own_run(invoke: Invoke, tmp_path: Path) -> None:
    model = write_synthetic("gemma3-tiny?layers=2", tmp_path / "model")
    what = ["--tokens", "2,3,5,7,11", "--chunks", "3,2", "--decode", 1, "--dtype", "fp32"]
    keep = ["--out", tmp_path, "--json"]
    theirs = invoke("capture-hf", model, *what, *keep, "--run-id", "hf")
    assert (theirs.code, theirs.err) == (0, "")
    assert theirs.document["bundle"] == str(tmp_path / "hf")
    ours = invoke("run", "--model", model, *what, *keep, "--run-id", "ours")
    assert theirs.document["tokens"] == ours.document["tokens"]
    found = invoke(
        "diff-boundaries", tmp_path / "hf", tmp_path / "ours", "--atol", 1e-4, "--rtol", 1e-4
    )
    assert found.code == 0
    assert "engine (transformers" in found.out
    shown = invoke("inspect", tmp_path / "hf")
    assert shown.code == 0 and "engine transformers" in " ".join(shown.out.split())
    assert max(map(len, (found.out + shown.out).splitlines())) <= 100


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--attn", "flash_attention_2", "--tokens", "2"], "'flash_attention_2' is not one of"),
        ([], "--prompt or --tokens must be given"),
        (["--tokens", "2", "--prompt", "a"], "--prompt and --tokens exclude each other"),
        (["--tokens", "2", "--run-id", "../x"], "is not a folder name"),
        (["--tokens", "9999"], "9999"),
        (["--tokens", "2", "--points", "route"], "matches no boundary that transformers has"),
    ],
    ids=str,
)
def test_refused(invoke: Invoke, tmp_path: Path, options: list[str], said: str) -> None:
    done = invoke("capture-hf", "synthetic:gemma3-tiny", "--out", tmp_path / "runs", *options)
    assert (done.code, done.out) == (2, "")
    assert said in " ".join(done.err.split())
    assert "Traceback" not in done.err
    assert not (tmp_path / "runs").exists()


def test_a_model_that_is_not_there(invoke: Invoke, tmp_path: Path) -> None:
    done = invoke("capture-hf", tmp_path / "none", "--tokens", "2", "--out", tmp_path)
    assert done.code == 2
    assert "no such checkpoint" in done.err
