"""The command for machines with a GPU: kernel tests in processes, the report, the exit status."""

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import torch
from rich.console import Console

from bench.gpu import __main__ as check
from bench.gpu import defect, kernel_tests, timer
from bench.gpu.ratio import ratio_row
from bench.gpu.report import Clock, Report, Row, guarded
from bench.gpu.sizes import TINY
from bench.gpu.timer import WallTimer

ROOT = Path(__file__).resolve().parents[2]


def plenty() -> Clock:
    return Clock(3600)


# --- kernel tests ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("285 passed, 3 skipped, 422 deselected in 75.30s (0:01:15)", (285, 0, 0, 3)),
        ("== 1 failed, 2 passed, 1 error in 0.50s ==", (2, 1, 1, 0)),
        ("3 passed in 1.0s\nlater output\n4 passed, 2 warnings in 2.0s", (4, 0, 0, 0)),
        ("no tests ran in 0.01s", (0, 0, 0, 0)),
        ("python: No module named pytest", (0, 0, 0, 0)),
        ("", (0, 0, 0, 0)),
    ],
)
def test_the_summary_is_parsed(line: str, counts: tuple[int, int, int, int]) -> None:
    found = kernel_tests.parse_summary(f"....\n{line}\n")
    assert tuple(found[name] for name in ("passed", "failed", "errors", "skipped")) == counts


@pytest.mark.parametrize(
    ("outputs", "codes", "ok", "seen"),
    [
        (["5 passed in 1s", "4 passed, 1 skipped in 2s"], [0, 0], True, "9 passed, 1 skipped"),
        (["5 passed in 1s", "no tests ran in 0s"], [0, 5], True, "5 passed"),
        (["5 passed in 1s", "1 failed, 4 passed in 1s"], [0, 1], False, "9 passed, 1 failed"),
        (["5 skipped in 1s"], [0], False, "5 skipped"),
        (["no tests ran in 0s"], [5], False, "no summary of pytest's"),
        (["No module named pytest"], [1], False, "no summary of pytest's"),
        (["5 passed in 1s", "...."], [0, None], False, "5 passed; 1 of 2 processes ran past 60 s"),
        (["5 passed in 1s", "Segmentation fault"], [0, -11], False, "5 passed; pytest ended"),
        (["1 passed, 1 xpassed in 1s"], [0], False, "1 passed, 1 xpassed"),
    ],
)
def test_the_processes_are_judged_together(
    outputs: list[str], codes: list[int | None], ok: bool, seen: str
) -> None:
    row = kernel_tests.judge(outputs, codes, limit=60, seconds=1.0)
    assert (row.ok, row.judged) == (ok, True)
    assert row.seen.startswith(seen)
    assert bool(row.figures["output"]) is not ok


TESTS = """
import pytest, warnings
@pytest.mark.gpu
@pytest.mark.parametrize("number", range(5))
def test_number(number):
    warnings.warn("of another machine")
    assert number != {bad}
def test_not_chosen():
    raise SystemError
"""


@pytest.mark.parametrize(("bad", "ok"), [(9, True), (3, False)])
def test_pytest_runs_in_shards(tmp_path: Path, bad: int, ok: bool) -> None:
    (tmp_path / "test_some.py").write_text(TESTS.format(bad=bad))
    (row,) = kernel_tests.run(limit=120, targets=[str(tmp_path / "test_some.py")], workers=2)
    assert row.ok is ok, row
    assert row.figures["passed"] == (5 if ok else 4)
    assert row.figures["processes"] == 2
    assert len(row.figures["failures"]) == (0 if ok else 1)


def test_a_test_that_hangs_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "test_slow.py"
    path.write_text(
        "import pytest, time\n@pytest.mark.gpu\ndef test_slow():\n    time.sleep(600)\n"
    )
    start = time.monotonic()
    (row,) = kernel_tests.run(limit=2, targets=[str(path)], workers=1)
    assert time.monotonic() - start < 60
    assert not row.ok
    assert "1 of 1 processes ran past 2 s" in row.seen


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_the_kernel_tests_do_not_pass_by_being_skipped() -> None:
    target = "tests/kernels/test_triton_store_kv.py"
    (row,) = kernel_tests.run(limit=300, targets=[target], workers=1)
    assert not row.ok
    assert row.figures["skipped"] > 0
    assert row.figures["passed"] == row.figures["failed"] == row.figures["errors"] == 0


# --- the report -----------------------------------------------------------------------------


def row(**more: object) -> Row:
    fields: dict[str, object] = {"part": "defect", "what": "w", "seen": "s", "aim": "a"}
    return Row(**{**fields, "ok": True, "judged": True, **more})  # type: ignore[arg-type]


MACHINE = {"device": "NVIDIA [red]H200", "torch": "2.11.0", "triton": "3.6.0"}


def report(*rows: Row, parts: tuple[str, ...] = ("defect",)) -> Report:
    return Report(machine=MACHINE, minutes=4, parts=parts, rows=list(rows))


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([row()], 0),
        ([row(), row(ok=False)], 1),
        ([row(), row(ok=False, judged=False)], 0),
        ([row(), row(ok=None)], 1),
        ([row(part="speed")], 1),  # the part that was asked for gave nothing
        ([], 1),
    ],
)
def test_only_what_is_judged_decides(rows: list[Row], code: int) -> None:
    assert report(*rows).exit_code == code


def test_the_table_says_what_on_which_machine() -> None:
    rows = (
        row(seen="[bold]5 of 6"),
        row(part="speed", what="digest", judged=False, aim="at least 0.80"),
        row(part="speed", judged=False, ok=False, what="late"),
        row(part="speed", judged=False, ok=None, what="none"),
        row(ok=False, what="broken"),
    )
    console = Console(width=200, record=True, file=Path(os.devnull).open("w"))  # noqa: SIM115
    console.print(report(*rows).table())
    console.file.close()
    text = console.export_text()
    assert "NVIDIA [red]H200, torch 2.11.0, triton 3.6.0" in text
    assert "[bold]5 of 6" in text
    cells = [line.split("│")[1:-1] for line in text.splitlines() if line.startswith("│")]
    assert [[line[0].strip(), line[3].strip()] for line in cells] == [
        ["defect: w", "yes"],
        ["speed: digest", "met"],
        ["speed: late", "missed"],
        ["speed: none", ""],
        ["defect: broken", "NO"],
    ]


def test_the_json_has_all_figures(tmp_path: Path) -> None:
    path = tmp_path / "gpu-check.json"
    found = report(row(figures={"ratio": 0.5, "classes": (3, 2, 1)}))
    found.seconds["defect"] = 1.26
    found.write(path)
    found.write(path)
    document = json.loads(path.read_text())
    assert document["machine"] == MACHINE
    assert (document["exit_code"], document["seconds"]) == (0, {"defect": 1.3})
    assert document["rows"][0]["figures"] == {"ratio": 0.5, "classes": [3, 2, 1]}
    assert [file.name for file in tmp_path.iterdir()] == ["gpu-check.json"]
    found.write(None)


def test_what_raises_is_a_row_and_what_is_late_is_skipped() -> None:
    def breaks() -> list[Row]:
        raise ValueError("no [tile]\nsecond line")

    said: list[str] = []
    once = partial(guarded, "speed", "digest", say=said.append)
    (broken,) = once(breaks, clock=plenty(), judged=False)
    assert (broken.ok, broken.judged, broken.seen) == (False, True, "ValueError: no [tile]")
    assert "second line" in broken.figures["traceback"]
    (late,) = once(breaks, clock=Clock(0), judged=False)
    assert (late.ok, late.judged, late.seen) == (None, False, "skipped: the time is up")
    (judged,) = once(breaks, clock=Clock(0), judged=True)
    assert (judged.ok, judged.judged) == (False, True)
    assert said[-1] == "speed: digest: skipped: the time is up"


def test_the_clock_runs_down() -> None:
    times = iter([10.0, 12.0, 15.0, 15.0])
    clock = Clock(4, now=lambda: next(times))
    assert clock.left == 2.0
    assert clock.left == 0.0
    assert clock.is_over


def test_bounds_are_inclusive() -> None:
    assert ratio_row("x", 0.7, "", at_least=0.7, figures={}).verdict == "met"
    assert ratio_row("x", 1.1, "", at_most=1.1, figures={}).verdict == "met"
    assert ratio_row("x", 1.11, "", at_most=1.1, figures={}).verdict == "missed"
    assert ratio_row("x", 1.11, "", figures={}).verdict == ""
    assert ratio_row("x", float("nan"), "", at_least=0.7, figures={}).verdict == "missed"


# --- the command ----------------------------------------------------------------------------


def test_without_a_gpu_it_says_so_and_exits_with_2(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.gpu", "--json", str(tmp_path / "x.json")],
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "no CUDA device" in " ".join(done.stderr.split())
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--only", "speed,tset"], "no such part: tset"),
        (["--minutes", "0"], "more than 0"),
        (["--minutes", "nan"], "more than 0"),
        (["--json", "/no/such/folder/x.json"], "no such folder"),
    ],
)
def test_bad_usage(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        check.main(arguments)
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.fixture
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole command, with the CPU in place of the device, a tiny model, and one shard."""
    run_parts, machine = check.run_parts, check.machine
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(check, "machine", lambda device: machine("cpu"))
    monkeypatch.setattr(
        check, "run_parts", lambda report, device, *rest: run_parts(report, "cpu", *rest)
    )
    monkeypatch.setattr(check, "BIG_MODEL", "synthetic:gemma3-tiny")
    passed = kernel_tests.judge(["3 passed in 1s"], [0], limit=1, seconds=1)
    monkeypatch.setattr(kernel_tests, "run", lambda limit: [passed])
    monkeypatch.setattr(timer, "CudaTimer", lambda device: WallTimer())
    monkeypatch.setattr("bench.gpu.sizes.FULL", TINY)


@pytest.mark.usefixtures("on_the_cpu")
def test_the_whole_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.json"
    assert check.main(["--json", str(path)]) == 0
    written = json.loads(path.read_text())
    assert Counter(row["part"] for row in written["rows"]) == {"tests": 1, "defect": 10, "speed": 8}
    assert set(written["seconds"]) == set(check.PARTS)
    assert written["machine"]["torch"] == torch.__version__
    assert "probe-c2 on" in capsys.readouterr().out


@pytest.mark.usefixtures("on_the_cpu")
def test_a_part_that_breaks_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def breaks(*arguments: object, **more: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(defect, "run", breaks)
    path = tmp_path / "x.json"
    assert check.main(["--json", str(path)]) == 1
    written = json.loads(path.read_text())["rows"]
    broken = [row for row in written if row["part"] == "defect"]
    assert [row["seen"].partition(":")[0] for row in broken] == ["RuntimeError"]
    assert sum(row["part"] == "speed" for row in written) == 8
    assert check.main(["--only", "speed"]) == 0
    assert check.main(["--only", "speed,defect"]) == 1


@pytest.mark.usefixtures("on_the_cpu")
def test_what_does_not_begin_in_time_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    assert check.main(["--json", str(path), "--minutes", "0.1"]) == 1  # less than the reserve
    seen = {row["seen"] for row in json.loads(path.read_text())["rows"]}
    assert seen == {"skipped: the time is up"}


def test_what_hangs_is_ended_with_what_is_known(tmp_path: Path) -> None:
    code = (
        "import sys, threading, time, torch\n"
        "from bench.gpu import __main__ as check\n"
        "torch.cuda.is_available = lambda: True\n"
        "check.machine = lambda device: {}\n"
        "def hang(report, *rest):\n"
        "    time.sleep(600)\n"
        "check.run_parts = hang\n"
        "sys.exit(check.main(['--minutes', '0.02', '--json', sys.argv[1]]))\n"
    )
    path = tmp_path / "x.json"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "was ended after 0.02 minutes" in " ".join(done.stdout.split())
    assert json.loads(path.read_text())["exit_code"] == 1


def test_no_watchdog_is_left() -> None:
    assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
