"""Whole diagnoses: of the founding defect, of two other mechanisms, and of one that is killed."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

KILLS = 20


def command(*args: object) -> list[str]:
    return [sys.executable, "-m", "swarepro", *map(str, args)]


LESS = ("--processes", 1, "--trials", 5)
ENVIRONMENT = {**os.environ, "HF_HUB_OFFLINE": "1"}


def diagnose(folder: Path, *args: object, code: int = 1) -> Any:
    """Diagnose, conclude again from the bytes, and return the conclusions."""
    run("diagnose", *args, "--out", folder, "--json", code=code)
    return conclude(folder, code)


def conclude(folder: Path, code: int = 1) -> Any:
    return json.loads(run("conclude", folder, "--json", code=code))


def run(*args: object, code: int) -> str:
    ran = subprocess.run(
        command(*args), capture_output=True, text=True, check=False, env=ENVIRONMENT
    )
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran.stdout


def verdicts(anchor: Any) -> dict[str, str]:
    return {tried["factor"]: tried["verdict"] for tried in anchor["factors"]}


def place(boundary: Any) -> tuple[int, str]:
    return boundary["step"], boundary["name"]


def named(*factors: str) -> tuple[str, ...]:
    return tuple(each for name in factors for each in ("--factor", name))


def test_the_founding_defect(tmp_path: Path) -> None:
    """The second and third table of the facts: two anchors, a control, six trials."""
    factors = named("alloc-swa", "sync-before-attention", "alternate-route", "zero-scratch")
    found = diagnose(
        tmp_path / "e",
        *("anchor-a", "anchor-b", "--control", "control", "--unpatched", *factors),
    )
    assert found["answer"] == "LOCALIZED"
    assert found["stabilisers"] == ["alloc-swa"]
    assert found["rejected"] == ["sync-before-attention", "alternate-route"]
    for anchor in found["anchors"]:
        assert place(anchor["baseline"]["earliest"]) == (0, "L0_kv_slice_post_write")
        assert place(anchor["baseline"]["first_value"]) == (1, "L0_attention_output")
        assert place(anchor["replay"]["found"]["earliest"]) == (1, "L0_kv_slice_post_write")
        assert place(anchor["replay"]["found"]["first_value"]) == (1, "L0_attention_output")
        assert verdicts(anchor)["zero-scratch"] == "NOT_APPLICABLE"
        treated = {t["factor"]: t["treatment"] for t in anchor["factors"]}["alloc-swa"]
        assert treated["trials"] == 6
        assert treated["varying"] == 0
        assert "the sentinel's, which nobody owns" in anchor["ownership"]
    control = found["control"]["baseline"]
    assert control["first_value"] is None
    assert place(control["earliest"]) == (0, "L0_kv_slice_post_write")


def test_another_mechanism_scratch_that_is_read_before_it_is_written(tmp_path: Path) -> None:
    found = diagnose(
        tmp_path / "e",
        *("unwritten-scratch", "--fault", "unwritten-scratch", "--control", "control", *LESS),
        *named("zero-scratch", "alloc-swa", "program-order"),
    )
    assert found["answer"] == "LOCALIZED"
    assert found["stabilisers"] == ["zero-scratch"]
    assert found["order_alone"] == ["program-order"]
    assert found["rejected"] == ["alloc-swa"]
    (anchor,) = found["anchors"]
    assert place(anchor["replay"]["found"]["earliest"]) == (2, "L0_attention_output")
    assert verdicts(anchor)["zero-scratch"] == "STABILISES"


def test_a_third_mechanism_a_row_that_lands_late(tmp_path: Path) -> None:
    found = diagnose(
        tmp_path / "e",
        *("late-store-row", "--fault", "late-store-row", "--control", "control", *LESS),
        *named("program-order", "alloc-swa"),
    )
    # What varies is the order itself: fixing it takes that away, and is no cause yet.
    assert found["answer"] == "PARTIAL"
    assert found["stabilisers"] == []
    assert found["order_alone"] == ["program-order"]
    assert found["rejected"] == ["alloc-swa"]
    (anchor,) = found["anchors"]
    assert place(anchor["replay"]["found"]["earliest"]) == (2, "L0_kv_slice_post_write")
    assert "where the row is not what was stored" in anchor["ownership"]


def results(folder: Path) -> dict[str, Any]:
    """Return what each trial gave, without what tells when and by whom it was run."""
    found = {}
    for path in sorted((folder / "trials").rglob("*.json")):
        trial = json.loads(path.read_bytes())
        for name in ("plan", "launch"):
            del trial[name]
        found[path.relative_to(folder).as_posix()] = trial
    return found


def failed(folder: Path) -> list[Any]:
    """Return the lines of the ledger that tell what failed."""
    lines = map(json.loads, (folder / "ledger.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == "failed"]


def check_same_trials(folder: Path, wanted: dict[str, Any]) -> None:
    """Every field of every trial, named where one differs."""
    assert failed(folder) == []
    found = results(folder)
    assert found.keys() == wanted.keys()
    for name, trial in found.items():
        differ = [field for field, value in trial.items() if value != wanted[name][field]]
        assert differ == [], name


def cut(folder: Path, lines: int) -> None:
    """Leave of a diagnosis what a kill after so many lines of its ledger leaves."""
    ledger = folder / "ledger.jsonl"
    kept = ledger.read_text().splitlines(keepends=True)[:lines]
    ledger.write_text("".join(kept))
    named = {json.loads(line)["what"] for line in kept} | {"plan.json", "ledger.jsonl"}
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif path.relative_to(folder).as_posix() not in named:
            path.unlink()


def conclusions(folder: Path) -> Any:
    """Return what was concluded, without what tells how many processes it took."""
    found = conclude(folder)
    for name in ("plan", "launches", "evidence"):
        del found[name]
    for case in (*found["anchors"], found["control"]):
        del case["processes"]
    for condition in found["conditions"]:
        condition["found"] = re.sub(r" in \d+ process(es)?$", "", condition["found"])
    return found


SHORT = (
    *("anchor-b", "--control", "control", "--unpatched"),
    *("--processes", 1, "--repeats", 2, "--trials", 2),  # PARTIAL: too few to go beyond chance
    *named("alloc-swa", "zero-scratch"),
)


def test_cut_off_after_each_trial_and_resumed(tmp_path: Path) -> None:
    """A trial is the same in whatever process it runs, and after whatever ran there before it."""
    whole = tmp_path / "whole"
    diagnose(whole, *SHORT)
    wanted, trials = conclusions(whole), results(whole)
    lines = map(json.loads, (whole / "ledger.jsonl").read_text().splitlines())
    from_state = ("trials/anchor-b/replay/", "trials/anchor-b/factor-")
    cuts = [line["seq"] + 1 for line in lines if line["what"].startswith(from_state)]
    assert len(cuts) == 3 + 5 + 1  # the replay, and the two factors
    for place in cuts:
        folder = tmp_path / f"cut-{place}"
        shutil.copytree(whole, folder)
        cut(folder, place)
        run("diagnose", "--resume", folder, "--json", code=1)
        check_same_trials(folder, trials)
        assert conclusions(folder) == wanted


def test_killed_at_twenty_points_and_resumed(tmp_path: Path) -> None:
    """The same conclusions from the same trials, none lost, none run twice."""
    diagnose(tmp_path / "whole", *SHORT)
    wanted, trials = conclusions(tmp_path / "whole"), results(tmp_path / "whole")
    draw = random.Random(5)
    kills = number = 0
    while kills < KILLS:
        folder = tmp_path / f"killed-{number}"
        number += 1
        arguments: tuple[object, ...] = (*SHORT, "--out", folder)
        while True:
            with subprocess.Popen(
                command("diagnose", *arguments),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env=ENVIRONMENT,
            ) as process:
                if kills < KILLS:
                    until = time.monotonic() + draw.uniform(1.0, 7.0)
                    while process.poll() is None and time.monotonic() < until:
                        time.sleep(0.01)
                    process.send_signal(signal.SIGKILL)
                _, errors = process.communicate()
            if process.returncode == 1:
                break
            assert process.returncode == -signal.SIGKILL, errors
            kills += 1
            if (folder / "ledger.jsonl").exists():
                arguments = ("--resume", folder)
        check_same_trials(folder, trials)
        lines = map(json.loads, (folder / "ledger.jsonl").read_text().splitlines())
        assert conclusions(folder) == wanted
        written = [line["what"] for line in lines if line["event"] == "file"]
        assert len(written) == len(set(written))
    assert kills == KILLS
