"""What only a real process shows: exit codes, pipes, signals, and what is imported."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = "run determinism diff-boundaries cases points faults inspect doctor synth"
PROGRAM = [sys.executable, "-m", "swarepro"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")])}


def swarepro(*args: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *map(str, args)],
        env=ENVIRONMENT,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_help_and_version() -> None:
    done = swarepro("--help")
    assert done.returncode == 0
    for command in COMMANDS.split():
        assert command in done.stdout
    assert "0 nothing found, 1 a finding, 2 could not judge" in done.stdout
    assert swarepro("--version").stdout.startswith("swarepro ")


def test_no_command_shows_the_help_and_judges_nothing() -> None:
    done = swarepro()
    assert done.returncode == 2
    assert "Usage: swarepro" in done.stdout


@pytest.mark.parametrize("args", ["'--help'", "'run', '--help'", "'points'", "'cases', 'list'"])
def test_light_commands_import_no_heavy_library(args: str) -> None:
    code = (
        "import sys\n"
        "from swarepro.cli.app import app\n"
        f"try: app([{args}])\n"
        "except SystemExit as stop: assert not stop.code, stop.code\n"
        "loaded = {'torch', 'triton', 'numpy', 'transformers', 'gguf'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_missing_bundle_is_2_without_a_traceback(tmp_path: Path) -> None:
    done = swarepro("diff-boundaries", tmp_path / "a[/x]", tmp_path / "b")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert "a[/x]" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_pipe_that_closes_early_is_quiet() -> None:
    writer = subprocess.Popen(
        [*PROGRAM, "points", "--json"],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert writer.stdout is not None
    assert writer.stderr is not None
    writer.stdout.close()
    error = writer.stderr.read()
    writer.stderr.close()
    assert writer.wait(timeout=60) == 0
    assert error == b""


def _interruptible() -> None:
    """A suite that was started in the background ignores SIGINT, and children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_run_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    run = subprocess.Popen(
        [*PROGRAM, "run", "anchor-a", "--decode", "50", "--out", str(tmp_path)],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_interruptible,
    )
    deadline = time.monotonic() + 60
    while not any(tmp_path.iterdir()) and run.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert run.poll() is None, "it ended before it could be stopped"
    run.send_signal(number)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 2
    assert out == ""
    assert err == "error: interrupted; nothing was kept\n"
    assert list(tmp_path.iterdir()) == []


def test_a_stopped_repeat_in_a_process_of_its_own_leaves_nothing(tmp_path: Path) -> None:
    """The signal reaches the first process alone: the other one ends its bundle."""
    keep = tmp_path / "keep"
    command = ["determinism", "anchor-a", "--fresh-process", "-n", "3", "--keep", str(keep)]
    run = subprocess.Popen(
        [*PROGRAM, *command],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_interruptible,
    )
    deadline = time.monotonic() + 120
    while not any(keep.rglob("records.jsonl")) and time.monotonic() < deadline:
        assert run.poll() is None, "it ended before it could be stopped"
        time.sleep(0.02)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=120)
    assert run.returncode == 2
    assert out == ""
    assert "error: interrupted; nothing was kept\n" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("args", [("--help",), ("run", "--help"), ("--version",), ("points",)])
def test_a_full_disk_under_help_is_no_finding(args: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PROGRAM, *args], env=ENVIRONMENT, stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 2
    assert b"No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("args", ["--help", "run --help", "--version", "points"])
def test_a_reader_of_help_that_left_is_no_finding(args: str) -> None:
    command = f"{sys.executable} -m swarepro {args} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], env=ENVIRONMENT, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("route", ["triton-split", "triton-paged"])
def test_a_triton_route_chooses_the_interpreter_by_itself(tmp_path: Path, route: str) -> None:
    """In a process whose environment says nothing about Triton's mode."""
    environment = {k: v for k, v in ENVIRONMENT.items() if k != "TRITON_INTERPRET"}
    command = [*PROGRAM, "run", "--model", "synthetic:gemma4-tiny?layers=2", "--tokens", "1,2,3"]
    command += ["--route", route, "--out", str(tmp_path), "--run-id", "a", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    assert manifest["backend"]["triton"] == "interpret"
    assert manifest["backend"]["route"] == route
    assert set(manifest["backend"]["launches"]) >= {"store_kv", "paged_prefill", "paged_decode"}
