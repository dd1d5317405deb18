"""`swarepro import` and `swarepro export`: what they print, their exit codes, and bad input."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from swarepro.bundle.read import open_bundle
from tests.cli.conftest import Invoke
from tests.unit.foreign.dumps import LAYERS, save_npy, tiny_run, write_map

COUNT = 2 * (4 + 5 * LAYERS)


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    write_map(tmp_path)
    return save_npy(tiny_run(4, 1), tmp_path / "dump")


def test_import_writes_a_bundle_and_says_what_became_of_the_dump(
    invoke: Invoke, dump: Path, tmp_path: Path
) -> None:
    done = invoke(
        "import", "npy", dump, "--map", tmp_path / "map.toml", "--out", tmp_path / "bundle"
    )
    assert done.code == 0
    assert done.out.startswith(f"Imported {COUNT} tensors of tiny, {COUNT} boundaries matched")
    *lines, last = done.out.splitlines()
    assert last == f"bundle: {tmp_path / 'bundle'}"
    assert max(map(len, lines)) <= 100
    assert open_bundle(tmp_path / "bundle").verify() == COUNT
    inspected = invoke("inspect", tmp_path / "bundle")
    assert inspected.code == 0
    assert "engine tiny" in inspected.out
    same = invoke("diff-boundaries", tmp_path / "bundle", tmp_path / "bundle")
    assert same.code == 0


def test_check_writes_nothing_and_lists_what_does_not_fit(
    invoke: Invoke, dump: Path, tmp_path: Path
) -> None:
    np.save(dump / "s0.l0.gate[bold].npy", np.zeros(3))
    (dump / "s1.l1.attn.npy").unlink()
    before = sorted(tmp_path.rglob("*"))
    done = invoke("import", "npy", dump, "--map", tmp_path / "map.toml", "--check")
    assert done.code == 0
    assert "Importable" in done.out
    assert "Nothing was written." in done.out
    for title in ("Matched", "Steps", "Missing", "Unmatched"):
        assert f"\n{title}" in done.out
    assert "sN.lN.gate[bold]" in done.out
    assert "step 1 layer 1" in done.out
    assert max(map(len, done.out.splitlines())) <= 100
    assert sorted(tmp_path.rglob("*")) == before


def test_the_document_has_stable_keys(invoke: Invoke, dump: Path, tmp_path: Path) -> None:
    done = invoke("import", "npy", dump, "--map", tmp_path / "map.toml", "--check", "--json")
    document = done.document
    assert list(document) == [
        "engine",
        "source",
        "bundle",
        "importable",
        "tensors",
        "records",
        "num_bytes",
        "matched",
        "unused",
        "missing",
        "unmatched",
        "skipped",
        "ambiguous",
        "incomplete",
        "refusals",
        "allowed",
        "notes",
        "steps",
    ]
    assert document["importable"] is True
    assert document["steps"][1] == {
        "step": 1,
        "engine_step": 1,
        "phase": "decode",
        "session": 0,
        "start": 4,
        "end": 5,
    }


@pytest.mark.parametrize("problem", ["ambiguous", "refused"])
def test_a_dump_with_problems_is_code_2_and_shows_them(
    problem: str, invoke: Invoke, dump: Path, tmp_path: Path
) -> None:
    if problem == "ambiguous":
        np.save(dump / "s00.logits.npy", np.ones((1, 5), np.float32))
        word = "Ambiguous: two tensors for one boundary"
    else:
        for layer in range(LAYERS):
            np.save(dump / f"s0.l{layer}.attn.npy", np.arange(64, dtype=np.float32).reshape(4, 16))
        word = "as under a replayed graph"
    arguments = ("import", "npy", dump, "--map", tmp_path / "map.toml")
    checked = invoke(*arguments, "--check")
    assert checked.code == 2
    assert checked.out.startswith("Not importable: ")
    assert word in " ".join(checked.out.split())
    assert invoke(*arguments, "--check", "--json").document["importable"] is False
    done = invoke(*arguments, "--out", tmp_path / "bundle")
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith(f"error: {dump} is not imported: ")
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ((), "give --out BUNDLE"),
        (("--check", "--out", "x"), "one of the two"),
        (("--check", "--sizes", "H=x"), "'H=x' is no LETTER=NUMBER"),
        (("--check", "--sizes", "H=1,H=2"), "is there twice"),
        (("--check", "--sizes", "HH=1"), "no LETTER"),
    ],
)
def test_usage(more: tuple[str, ...], why: str, invoke: Invoke, dump: Path, tmp_path: Path) -> None:
    done = invoke("import", "npy", dump, "--map", tmp_path / "map.toml", *more)
    assert done.code == 2
    assert why in done.err
    assert not Path("x").exists()


def test_an_unknown_format_or_map(invoke: Invoke, dump: Path) -> None:
    assert invoke("import", "pickle", dump, "--map", "sglang", "--check").code == 2
    done = invoke("import", "npy", dump, "--map", "sglan", "--check")
    assert done.code == 2
    assert "did you mean 'sglang'?" in done.err


class Evil:
    """A pickle that makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("kind", ["pickle", "link", "header", "nan", "quadratic", "fifo"])
def test_hostile_input_ends_in_an_error_and_leaves_nothing(
    kind: str, invoke: Invoke, tmp_path: Path
) -> None:
    dump, mark = tmp_path / "dump", tmp_path / "executed"
    dump.mkdir()
    form, chosen = "npy", str(write_map(tmp_path))
    if kind == "pickle":
        form = "torch"
        (dump / "x.pt").write_bytes(pickle.dumps(Evil(mark)))
    elif kind == "link":
        (dump / "s0.logits.npy").symlink_to("/etc/passwd")
    elif kind == "header":
        form = "safetensors"
        (dump / "x.safetensors").write_bytes((200 * 1000**2).to_bytes(8, "little"))
    elif kind == "nan":
        np.save(dump / "s0.logits.npy", np.zeros((3, 5)))
        path = dump / "s0.logits.npy"
        path.write_bytes(path.read_bytes().replace(b"(3, 5)", b"(nan,)"))
    elif kind == "quadratic":
        np.save(dump / "x.npy", np.zeros(1))
        text = f'engine = "x"\n[[points]]\npoint = "logits"\nname = "{"*a" * 40}"\n'
        write_map(tmp_path, text)
    else:
        os.mkfifo(dump / "s0.logits.npy")
    before = sorted(tmp_path.rglob("*"))
    for more in (("--check",), ("--out", tmp_path / "bundle")):
        done = invoke("import", form, dump, "--map", chosen, *more)
        assert done.code == 2, done.err
        assert done.err.startswith("error: ")
        assert "Traceback" not in done.err
        assert done.out == ""
    assert sorted(tmp_path.rglob("*")) == before
    assert not mark.exists()


def test_export_and_back(invoke: Invoke, dump: Path, tmp_path: Path) -> None:
    bundle, plain, back = (tmp_path / name for name in ("bundle", "plain", "back"))
    invoke("import", "npy", dump, "--map", tmp_path / "map.toml", "--out", bundle)
    done = invoke("export", bundle, "--out", plain)
    assert done.code == 0
    assert done.out.startswith(f"Exported {COUNT} tensors into 2 safetensors files and an index")
    done = invoke("import", "safetensors", plain, "--map", "swarepro", "--out", back, "--json")
    assert done.code == 0
    assert done.document["engine"] == "tiny"
    assert invoke("diff-boundaries", bundle, back).out.startswith("IDENTICAL")
    again = invoke("export", bundle, "--out", plain, "--json")
    assert again.code == 2
    assert "exists already" in again.document["error"]["message"]
