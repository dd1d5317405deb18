"""`swarepro diagnose` and `swarepro conclude`, on real runs."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .conftest import Invoke

pytestmark = pytest.mark.xdist_group("diagnosis")

SMALL = ("--processes", 1, "--repeats", 3, "--trials", 4)


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, dict[str, object]]:
    """A small diagnosis of an anchor; the process that made it has ended."""
    folder = tmp_path_factory.mktemp("diagnosis") / "evidence"
    factors = ("alloc-swa", "sync-before-attention", "zero-scratch")
    done = run(
        *("diagnose", "anchor-b", "--control", "control", "--unpatched", *SMALL),
        *("--out", folder),
        *(each for name in factors for each in ("--factor", name)),
    )
    assert done.returncode == 1, done.stderr
    again = run("conclude", folder, "--json")
    assert again.returncode == 1, again.stderr
    return folder, done.stdout, json.loads(again.stdout)


def run(*args: object, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "swarepro", *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "COLUMNS": "100", **environment},
    )


def test_the_cause_is_localised_and_said(evidence: tuple[Path, str, dict[str, object]]) -> None:
    folder, out, found = evidence
    text = " ".join(out.split())
    assert text.startswith(
        "LOCALIZED: from one state the earliest boundary that varies is step 1"
        " L0_kv_slice_post_write; alloc-swa makes every anchor stable."
    )
    assert "Ruled out on every anchor: sync-before-attention (read its caution)." in text
    assert "zero-scratch is NOT_APPLICABLE: the step takes no memory for partial results" in text
    assert f"swarepro replay --from {folder}/states/anchor-b" in text
    assert max(len(line) for line in out.splitlines() if "swarepro" not in line) <= 100
    assert found["answer"] == "LOCALIZED"
    assert found["stabilisers"] == ["alloc-swa"]
    assert [c["met"] for c in found["conditions"]] == [True] * 6  # type: ignore[attr-defined]


def test_the_same_conclusions_without_torch(
    evidence: tuple[Path, str, dict[str, object]], tmp_path: Path
) -> None:
    """On a machine that has neither the model nor torch: their imports fail there."""
    folder, _, found = evidence
    copy = shutil.copytree(folder, tmp_path / "elsewhere")
    blocked = (
        "import sys\n"
        "for name in ('torch', 'triton', 'swarepro_kernels'): sys.modules[name] = None\n"
        "from swarepro.cli.app import main\n"
        f"sys.argv = ['swarepro', 'conclude', {str(copy)!r}, '--json']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", blocked], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert {**json.loads(done.stdout), "evidence": str(folder)} == found


def test_its_state_is_replayed(
    invoke: Invoke, evidence: tuple[Path, str, dict[str, object]]
) -> None:
    folder, _, _ = evidence
    done = invoke("replay", "--from", folder / "states" / "anchor-b", "-n", 3, "--json")
    assert done.code == 1
    assert done.document["found"]["earliest_varying"]["name"] == "L0_kv_slice_post_write"


def test_a_finished_one_is_resumed_by_reading_it(
    invoke: Invoke, evidence: tuple[Path, str, dict[str, object]]
) -> None:
    folder, _, found = evidence
    before = sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*"))
    done = invoke("diagnose", "--resume", folder, "--json")
    assert done.code == 1
    assert done.document == found
    assert sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*")) == before


def test_a_removed_trial_is_refused(
    invoke: Invoke, evidence: tuple[Path, str, dict[str, object]], tmp_path: Path
) -> None:
    folder, _, _ = evidence
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "trials" / "anchor-b" / "replay" / "trial-1.json").unlink()
    done = invoke("conclude", copy)
    assert done.code == 2
    assert "trials/anchor-b/replay/trial-1.json is missing" in done.err
    assert done.out == ""


def test_a_stable_case_is_not_reproduced(invoke: Invoke, tmp_path: Path) -> None:
    folder = tmp_path / "e"
    done = invoke("diagnose", "anchor-b", *SMALL, "--factor", "alloc-swa", "--out", folder)
    assert done.code == 0
    assert done.out.startswith("NOT_REPRODUCED: no value varies (anchor-b 3 repeats)")
    assert not (folder / "states").exists()
    assert {path.name for path in (folder / "trials" / "anchor-b").iterdir()} == {
        "baseline-0",
        "observer",
    }


def test_a_stable_case_against_a_right_run_is_wrong(invoke: Invoke, tmp_path: Path) -> None:
    invoke("run", "one-row", "--store", "digest", "--out", tmp_path, "--run-id", "right")
    done = invoke(
        *("diagnose", "one-row", "--unpatched", *SMALL, "--out", tmp_path / "e"),
        *("--reference", tmp_path / "right", "--json"),
    )
    assert done.code == 1
    assert done.document["answer"] == "DETERMINISTIC_BUT_WRONG"
    against = done.document["anchors"][0]["against"]
    assert against["first"] == "step 1, L0_attention_output"
    assert invoke("conclude", tmp_path / "e").code == 1


def test_a_reference_of_another_case_is_refused(invoke: Invoke, tmp_path: Path) -> None:
    invoke("run", "control", "--store", "digest", "--out", tmp_path, "--run-id", "right")
    done = invoke(
        *("diagnose", "one-row", *SMALL, "--out", tmp_path / "e"),
        *("--reference", tmp_path / "right"),
    )
    assert done.code == 2
    assert "has other prompts, steps than one-row" in done.err
    assert not (tmp_path / "e").exists()


def test_what_is_not_ours_is_left_alone(
    invoke: Invoke, evidence: tuple[Path, str, dict[str, object]], tmp_path: Path
) -> None:
    """A folder that is refused is as it was; one that is resumed keeps what it does not know."""
    copy = shutil.copytree(evidence[0], tmp_path / "copy")
    (copy / "MANIFEST.sha256").unlink()
    (copy / "notes.txt").write_text("mine")
    (copy / ".git").mkdir()
    (copy / ".git" / "HEAD").write_text("mine")
    before = {path: path.is_file() and path.read_bytes() for path in copy.rglob("*")}
    done = invoke("diagnose", "--resume", copy)
    assert done.code == 2
    assert ".git/HEAD is unknown: no diagnosis writes it" in done.err
    assert {path: path.is_file() and path.read_bytes() for path in copy.rglob("*")} == before


def test_a_case_that_ends_with_an_error_is_blocked(invoke: Invoke, tmp_path: Path) -> None:
    done = invoke("diagnose", "exhaustion", *SMALL, "--out", tmp_path / "e", "--json")
    assert done.code == 2
    assert done.document["answer"] == "BLOCKED"
    assert "the SWA pool needs" in str(done.document["failures"])
    done = invoke("conclude", tmp_path / "e")
    assert done.code == 2
    assert done.out.startswith("BLOCKED")


def test_a_harness_whose_restore_does_nothing_is_caught(tmp_path: Path) -> None:
    """The process of the replay notices; nothing is concluded from such trials."""
    (tmp_path / "sitecustomize.py").write_text(
        "import swarepro.kvcache.pool as pool\npool.KVPool.restore = lambda self, kv: 0\n"
    )
    done = run(
        *("diagnose", "anchor-b", "--unpatched", *SMALL, "--factor", "program-order"),
        *("--out", tmp_path / "e", "--json"),
        PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
    )
    assert done.returncode == 2, done.stderr
    found = json.loads(done.stdout)
    assert found["answer"] == "BLOCKED"
    assert "is not the frozen one" in found["failures"]["trials/anchor-b/replay"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "no case is named"),
        (("no-such-case",), "no-such-case"),
        (("anchor-a", "anchor-a"), "is named twice"),
        (("anchor-a", "--control", "anchor-a"), "is named twice"),
        (("anchor-a", "--factor", "alloc-swe"), "alloc-swa"),
        (("anchor-a", "--factor", "graft:L0_o_proj=x"), "a graft is of one case"),
        (("anchor-a", "--fault", "no-such-fault"), "no-such-fault"),
        (("anchor-a", "--processes", 1, "--repeats", 1), "nothing can vary in fewer than 2"),
        (("anchor-a", "--trials", 1), "--trials"),
        (("anchor-a", "--reference", "no-such-bundle"), "no-such-bundle"),
        (("anchor-a", "anchor-b", "--reference", "x"), "a reference is of one case"),
        (("anchor-a", "--route", "no-such-route"), "no-such-route"),
        (("--resume", "no-such-folder"), "is no diagnosis that was begun"),
        (("anchor-a", "--resume", "x", "--trials", 3), "CASE, --trials cannot be given"),
    ],
)
def test_refusals_leave_nothing(
    invoke: Invoke, tmp_path: Path, args: tuple[object, ...], said: str
) -> None:
    out = () if "--resume" in args else ("--out", tmp_path / "e")
    done = invoke("diagnose", *args, *out)
    assert done.code == 2
    assert said in done.err
    assert done.out == ""
    assert not (tmp_path / "e").exists()


def test_a_folder_is_never_overwritten(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "e").mkdir()
    done = invoke("diagnose", "anchor-a", "--out", tmp_path / "e")
    assert done.code == 2
    assert "exists already" in done.err
    assert list((tmp_path / "e").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_says_how_to_go_on(tmp_path: Path, number: signal.Signals) -> None:
    """The signal reaches the program alone, as `kill` sends it; nothing is left running."""
    folder = tmp_path / "e"
    with subprocess.Popen(
        [sys.executable, "-m", "swarepro", "diagnose", "control", "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    ) as process:
        until = time.monotonic() + 60
        while time.monotonic() < until and '"event":"launch"' not in _text(folder / "ledger.jsonl"):
            time.sleep(0.05)
        process.send_signal(number)
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert out == ""
    assert errors.splitlines() == [
        f"error: interrupted; what has run is kept in {folder}",
        f"hint: go on with it: swarepro diagnose --resume {folder}",
    ]
    done = run("diagnose", "--resume", folder, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["answer"] == "NOT_REPRODUCED"
    assert json.loads(done.stdout)["launches"] == 4  # one of two baselines was begun twice


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
