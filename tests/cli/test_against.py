"""`swarepro run --against`: what it answers, what it refuses, and what it leaves behind."""

from pathlib import Path

import pytest

from tests.cli.conftest import Invoke, Outcome

RACE = ("run", "anchor-a", "--unpatched", "--schedule")


@pytest.fixture
def base(invoke: Invoke, tmp_path: Path) -> Path:
    """The run to compare with: digests alone."""
    done = invoke(*RACE, "seeded:1", "--store", "digest", "--out", tmp_path, "--run-id", "base")
    assert done.code == 1, done.err  # the shadow's violations
    return tmp_path / "base"


def against(invoke: Invoke, base: Path, *more: object, seed: int = 2) -> Outcome:
    where = ("--against", base, "--out", base.parent, "--run-id", "new")
    return invoke(*RACE, f"seeded:{seed}", *where, *more)


def test_the_first_mismatch_of_a_race(invoke: Invoke, base: Path) -> None:
    done = against(invoke, base)
    assert done.code == 1
    assert "DIVERGED. A bad store: the runs part at step 0, L0_kv_slice_post_write" in done.out
    said = " ".join(done.out.split())
    assert "It harms no captured value up to step 0, the last that both runs have." in said
    assert "6 tensors stored: the first mismatch and its captured inputs" in said
    assert "The runs differ in: schedule (seeded:1 against seeded:2)." in said
    assert "Run it again as it was run, with --against this bundle" in said
    assert f"compare: swarepro diff-boundaries {base} {base.parent / 'new'}" in done.out
    assert max(map(len, done.out.splitlines()[:-2])) <= 100


def test_what_it_says_to_run_next_answers(invoke: Invoke, base: Path) -> None:
    against(invoke, base)
    new = base.parent / "new"
    done = invoke("diff-boundaries", base, new)
    assert done.code == 1
    assert "at step 0, L0_kv_slice_post_write" in " ".join(done.out.split())
    done = invoke(*RACE, "seeded:1", "--against", new, "--out", base.parent, "--run-id", "again")
    assert done.code == 1
    assert "relative L2" in done.out
    done = invoke("diff-boundaries", base.parent / "again", new, "--json")
    assert done.document["first"]["relative_l2"] > 0
    assert "6 tensors stored, 6 of them verified" in invoke("inspect", new).out


def test_json(invoke: Invoke, base: Path) -> None:
    document = against(invoke, base, "--json").document
    plain = invoke("run", "anchor-a", "--out", base.parent, "--run-id", "plain", "--json").document
    assert set(document) == {*plain, "against"}
    assert len(document["steps"]) == 1
    found = document["against"]
    diff = invoke("diff-boundaries", base, base.parent / "new", "--json").document
    assert set(found) == {
        *diff,
        *("steps_run", "steps_planned", "steps_baseline", "stored", "in_baseline", "peak_bytes"),
    }
    apart = {"differences"}  # that the run was stopped is none
    assert {key: found[key] for key in diff.keys() - apart} == {
        key: diff[key] for key in diff.keys() - apart
    }
    assert found["first"]["name"] == "L0_kv_slice_post_write"
    assert (found["steps_run"], found["steps_planned"], found["steps_baseline"]) == (1, 2, 2)
    assert found["stored"][-1] == {
        "name": "L0_kv_slice_post_write",
        "key": "L0_kv_slice_post_write",
        "step": 0,
        "stage": 0,
        "session": 0,
        "layer": 0,
        "kind": "state",
        "dtype": "BF16",
        "shape": [64, 2, 2, 16],
        "digest": found["stored"][-1]["digest"],
        "file": "tensors/step-0000.safetensors",
    }
    assert found["in_baseline"] is False
    assert 0 < found["peak_bytes"] < 2**20


def test_going_on_names_the_value_that_is_harmed(invoke: Invoke, base: Path) -> None:
    done = against(invoke, base, "--go-on")
    assert done.code == 1
    said = " ".join(done.out.split())
    assert "It first harms a value at step 1, L0_attention_output" in said
    assert "Ran anchor-a: 2 steps, 384 points captured" in said


def test_an_equal_run_says_how_much_was_compared(invoke: Invoke, base: Path) -> None:
    """The shadow's violations are a finding with and without a baseline."""
    done = against(invoke, base, "--json", seed=1)
    assert done.document["against"]["verdict"] == "IDENTICAL"
    assert done.document["against"]["compared"] == 384
    assert done.document["against"]["stored"] == []
    assert done.code == 1
    again = invoke(
        *(*RACE, "seeded:1", "--ownership", "off", "--against", base, "--out", base.parent)
    )
    assert again.code == 0
    assert "IDENTICAL: all 384 boundaries have the same bytes on both sides." in again.out
    assert "--verify" not in again.out


def test_control_a_healthy_run_against_itself_ends_with_0(invoke: Invoke, tmp_path: Path) -> None:
    assert invoke("run", "anchor-a", "--out", tmp_path, "--run-id", "a").code == 0
    done = invoke("run", "anchor-a", "--against", tmp_path / "a", "--out", tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "IDENTICAL: all 384 boundaries" in done.out
    assert "0 tensors opened" in done.out


def test_numbers_where_the_baseline_stores_tensors(invoke: Invoke, tmp_path: Path) -> None:
    invoke("run", "anchor-a", "--out", tmp_path, "--run-id", "a")
    done = invoke("run", "anchor-a", "--unpatched", "--against", tmp_path / "a", "--out", tmp_path)
    assert done.code == 1
    said = " ".join(done.out.split())
    assert "The runs use different KV slots" in said
    assert "64 of 64: 0-63" in said
    assert "The runs differ in: faults (none against skip-swa-allocation)." in said
    assert "leave them out, and the first store or value that differs is stored: --points" in said
    assert "The baseline has no tensor there" not in said


def test_it_ends_with_its_baseline(invoke: Invoke, tmp_path: Path) -> None:
    invoke("run", "anchor-a", "--out", tmp_path, "--run-id", "a", "--store", "digest")
    more = ("--decode", 2, "--against", tmp_path / "a", "--out", tmp_path)
    done = invoke("run", "anchor-a", *more)
    assert done.code == 0
    said = " ".join(done.out.split())
    assert "The baseline ends with step 1: 2 steps of the plan did not run." in said
    done = invoke("run", "anchor-a", *more, "--go-on")
    said = " ".join(done.out.split())
    assert "on both sides up to step 1, the last that both runs have." in said
    assert "Ran anchor-a: 4 steps" in said


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--chunks", "32,35"), "has other steps than this run"),
        (("--dtype", "fp32"), "cannot be compared by digest"),
        (("--store", "tensor"), "--store tensor and --against exclude each other"),
        (("--engine", "dense"), "not on the engine dense"),
        (("--points", "nothing"), "matches no capture point"),
    ],
)
def test_refused_with_2_and_nothing_is_left(
    invoke: Invoke, tmp_path: Path, more: tuple[str, ...], message: str
) -> None:
    invoke("run", "anchor-a", "--out", tmp_path, "--run-id", "a", "--store", "digest")
    done = invoke("run", "anchor-a", "--against", tmp_path / "a", "--out", tmp_path, *more)
    assert done.code == 2
    assert message in done.err
    assert "hint:" in done.err
    assert done.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_baseline_that_is_none(invoke: Invoke, tmp_path: Path) -> None:
    done = invoke("run", "anchor-a", "--against", tmp_path / "no", "--out", tmp_path / "out")
    assert (done.code, done.out) == (2, "")
    assert "does not exist" in done.err
    assert not (tmp_path / "out").exists()


def test_go_on_goes_with_against(invoke: Invoke, tmp_path: Path) -> None:
    done = invoke("run", "anchor-a", "--go-on", "--out", tmp_path / "out")
    assert (done.code, done.out) == (2, "")
    assert "--go-on goes with --against" in done.err
