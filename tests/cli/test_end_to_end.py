"""The main job through the command line: run, compare, repeat; with its negative controls."""

import json
from pathlib import Path

import pytest

from swarepro.cli.app import app
from tests.cli.conftest import Invoke


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with anchor-a run patched (``p``) and unpatched (``u``)."""
    out = tmp_path_factory.mktemp("runs")
    for run_id, extra in (("p", []), ("u", ["--unpatched"])):
        with pytest.raises(SystemExit) as stop:
            app(["run", "anchor-a", *extra, "--out", str(out), "--run-id", run_id])
        assert stop.value.code == len(extra)
    return out


def test_run_prints_its_bundle_and_a_clean_ownership_report(invoke: Invoke, tmp_path: Path) -> None:
    done = invoke("run", "anchor-a", "--out", tmp_path, "--store", "digest", "--json")
    assert done.code == 0
    document = done.document
    bundle = Path(document["bundle"])
    assert bundle.parent == tmp_path
    assert [step["spans"][0]["end"] for step in document["steps"]] == [64, 67]
    assert len(document["tokens"]) == 1
    assert document["points"] == len((bundle / "records.jsonl").read_text().splitlines())
    assert document["size_bytes"] == sum(
        path.stat().st_size for path in bundle.rglob("*") if path.is_file()
    )
    groups = [(owned["stage"], owned["group"], owned["live"]) for owned in document["ownership"]]
    assert groups == [(stage, group, 67) for stage in range(3) for group in ("full", "sliding")]
    assert not any(stage["violations"] for stage in document["ownership"])
    assert done.err == ""


def test_an_unpatched_run_is_a_finding(invoke: Invoke, runs: Path) -> None:
    done = invoke("inspect", runs / "u")
    assert done.code == 1
    assert "sentinel-store" in done.out
    assert invoke("inspect", runs / "p").code == 0


def test_a_bundle_is_never_overwritten(invoke: Invoke, runs: Path) -> None:
    before = (runs / "p" / "manifest.json").read_bytes()
    done = invoke("run", "anchor-a", "--out", runs, "--run-id", "p")
    assert done.code == 2
    assert (runs / "p" / "manifest.json").read_bytes() == before


def test_diff_names_slots_store_and_value(invoke: Invoke, runs: Path) -> None:
    done = invoke("diff-boundaries", runs / "p", runs / "u", "--json")
    assert done.code == 1
    document = done.document
    assert document["verdict"] == "DIVERGED"
    found = {key: document[key] for key in ("first", "first_state", "first_value")}
    places = {key: (value["step"], value["name"]) for key, value in found.items()}
    assert places == {
        "first": (0, "swa_slots"),
        "first_state": (0, "L0_kv_slice_post_write"),
        "first_value": (1, "L0_attention_output"),
    }
    assert found["first_value"]["positions"] == [64, 65, 66]
    assert found["first_value"]["bound"] == "exact"
    text = invoke("diff-boundaries", runs / "p", runs / "u").out
    assert "The runs use different KV slots" in text.replace("\n", " ")
    assert "step 1, L0_attention_output" in text.replace("\n", " ")


def test_control_a_run_equals_itself(invoke: Invoke, runs: Path) -> None:
    done = invoke("diff-boundaries", runs / "p", runs / "p", "--verify", "--json")
    assert done.code == 0
    document = done.document
    assert document["verdict"] == "IDENTICAL"
    assert document["first"] is None
    assert document["boundaries"] == document["only_baseline"] == document["only_target"] == []


def test_a_run_without_the_head_has_no_tokens_to_differ(
    invoke: Invoke, runs: Path, tmp_path: Path
) -> None:
    """Layers 0 to 3 alone, against the chain: nothing that both have differs."""
    headless = ("run", "anchor-a", "--layers", "0:4", "--out", tmp_path)
    assert invoke(*headless, "--run-id", "h").code == 0
    for pair in ((runs / "p", tmp_path / "h"), (tmp_path / "h", runs / "p")):
        done = invoke("diff-boundaries", *pair, "--json")
        assert done.code == 0
        assert (done.document["verdict"], done.document["tokens_differ"]) == ("IDENTICAL", False)
    # Control: a fault in these layers is still found.
    assert invoke(*headless, "--run-id", "hu", "--unpatched").code == 1
    assert invoke("diff-boundaries", runs / "p", tmp_path / "hu").code == 1


@pytest.mark.parametrize(
    ("capture", "first"),
    [(("--capture", "boundary"), "after_layer_0"), (("--points", "logits"), "logits")],
)
def test_what_was_not_captured_makes_no_source(
    invoke: Invoke, tmp_path: Path, capture: tuple[str, ...], first: str
) -> None:
    """The bad store is not captured: the first bad value must not be called its source."""
    base = ("run", "anchor-a", *capture, "--out", tmp_path)
    assert invoke(*base, "--run-id", "p").code == 0
    assert invoke(*base, "--run-id", "u", "--unpatched").code == 1
    found = invoke("diff-boundaries", tmp_path / "p", tmp_path / "u", "--json").document
    assert found["differences"] == ["faults (none against skip-swa-allocation)"]
    place = {key: found["first"][key] for key in ("step", "name", "bound", "origin")}
    assert place == {"step": 1, "name": first, "bound": "here-or-before", "origin": "unknown"}
    assert not any(boundary["origin"] == "source" for boundary in found["boundaries"])
    text = invoke("diff-boundaries", tmp_path / "p", tmp_path / "u").out
    assert text.startswith("The runs differ in: faults (none against skip-swa-allocation).\n")
    assert "exactly here" not in text
    assert "a source" not in text.replace("0 of them at a source", "")


def test_control_captured_in_full_there_is_a_source(invoke: Invoke, runs: Path) -> None:
    found = invoke("diff-boundaries", runs / "p", runs / "u", "--json").document
    sources = [entry for entry in found["boundaries"] if entry["origin"] == "source"]
    assert [(entry["step"], entry["name"], entry["stage"]) for entry in sources] == [
        (0, "swa_slots", 0),
        (0, "swa_slots#1", 1),
        (0, "swa_slots#2", 2),
    ]
    assert not any(entry["origin"] == "unknown" for entry in found["boundaries"])
    bounds = [found[key]["bound"] for key in ("first", "first_state", "first_value")]
    assert bounds == ["exact"] * 3


def test_two_orders_of_a_racing_store_part_at_the_store(invoke: Invoke, tmp_path: Path) -> None:
    for seed in (1, 2):
        args = ("run", "anchor-a", "--unpatched", "--schedule", f"seeded:{seed}")
        invoke(*args, "--out", tmp_path, "--run-id", seed)
    found = invoke("diff-boundaries", tmp_path / "1", tmp_path / "2", "--json").document
    first = found["first"]
    assert (first["name"], first["origin"], first["bound"]) == (
        "L0_kv_slice_post_write",
        "source",
        "exact",
    )


def test_a_flipped_byte_is_refused(invoke: Invoke, runs: Path, tmp_path: Path) -> None:
    import shutil

    bad = tmp_path / "bad"
    shutil.copytree(runs / "p", bad)
    path = bad / "tensors" / "step-0000.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    done = invoke("inspect", bad)
    assert done.code == 2
    assert "Traceback" not in done.err
    (bad / "manifest.json").unlink()
    assert invoke("diff-boundaries", runs / "p", bad).code == 2


def test_determinism_finds_the_store_and_the_value(invoke: Invoke, tmp_path: Path) -> None:
    done = invoke(
        "determinism", "anchor-a", "--unpatched", "-n", 3, "--keep", tmp_path / "k", "--json"
    )
    assert done.code == 1
    document = done.document
    assert document["verdict"] == "NONDETERMINISTIC"
    assert document["repeats"] == 3
    assert document["earliest_varying"] == {
        "step": 0,
        "session": 0,
        "name": "L0_kv_slice_post_write",
        "layer": 0,
        "kind": "state",
    }
    value = document["first_value_varying"]
    assert (value["step"], value["name"]) == (1, "L0_attention_output")
    assert document["outputs_vary"] == [1]
    assert len(document["kept"]) == 2
    assert len(document["distinct"]) == document["points"]
    assert invoke("diff-boundaries", *document["kept"]).code == 1


def test_control_patched_is_deterministic(invoke: Invoke) -> None:
    done = invoke("determinism", "anchor-a", "-n", 3, "--json")
    assert done.code == 0
    document = done.document
    assert document["verdict"] == "DETERMINISTIC"
    assert document["varying"] == 0
    assert document["earliest_varying"] is None
    assert document["rate_upper_bound"] == pytest.approx(1 - 0.05 ** (1 / 3))


def test_one_stage_alone_receives_from_the_one_before(invoke: Invoke, tmp_path: Path) -> None:
    ids = tmp_path / "ids.json"
    ids.write_text(json.dumps([2, 3, 5, 7]))
    base = ("run", "--model", "synthetic:gemma4-tiny", "--tokens", f"@{ids}", "--chunk", 3)
    whole = invoke(*base, "--out", tmp_path, "--run-id", "whole", "--json")
    first = invoke(*base, "--layers", "0:4", "--out", tmp_path, "--run-id", "first")
    last = invoke(
        *(*base, "--layers", "4:12", "--recv", tmp_path / "first"),
        *("--out", tmp_path, "--run-id", "last", "--json"),
    )
    assert (whole.code, first.code, last.code) == (0, 0, 0)
    assert last.document["tokens"] == whole.document["tokens"]


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (("anchor-a", "--chunks", "64,4"), "64 + 4 = 68"),
        (("anchor-a", "--stages", "0:4,5:12"), "leave a hole"),
        (("anchor-a", "--stages", "0:4,3:12"), "overlap"),
        (("anchor-a", "--capacity", "10"), "the capacity is 10"),
        (("anchor-a", "--fault", "skip-swa-alloc"), "did you mean 'skip-swa-allocation'?"),
        (("anchor-a", "--schedule", "seed"), "unknown schedule 'seed'"),
        (("anchor-a", "--route", "nope"), "unknown route 'nope'"),
        (("anchor-a", "--model", "synthetic:nope"), "nope"),
        (("anchor-a", "--max-bundle-bytes", "1KiB"), "--max-bundle-bytes"),
        (("anchor-a", "--prompt", "hello"), "has no tokenizer"),
        (("anchor-a", "--tokens", "1,99999999"), "99999999"),
    ],
)
def test_bad_input_is_2_and_leaves_nothing(
    invoke: Invoke, tmp_path: Path, args: tuple[str, ...], named: str
) -> None:
    done = invoke("run", *args, "--out", tmp_path / "out")
    assert done.code == 2, done.err
    assert named in done.err
    assert done.out == ""
    out = tmp_path / "out"
    assert not out.exists() or list(out.iterdir()) == []
