"""Every way to end: exit codes, messages, and what never appears."""

import errno
import json
import sys
from pathlib import Path

import pytest

from swarepro import api
from swarepro.cli.failure import describe
from swarepro.errors import BundleError, ExitCode
from tests.cli.conftest import Invoke


class OutOfMemoryError(RuntimeError):
    """Stands for torch's, which is recognised by name."""


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        (BundleError("cut [/x]", hint="h"), "cut [/x]", 2),
        (KeyboardInterrupt(), "interrupted; nothing was kept", 2),
        (MemoryError(), "out of memory", 2),
        (OutOfMemoryError("CUDA: no\nmore"), "out of memory: CUDA: no", 2),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "out of memory: Default", 2),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device", 2),
        (PermissionError(errno.EACCES, "Permission denied", "a/b"), "a/b: Permission denied", 2),
        (OSError(), "OSError", 2),
        (ZeroDivisionError("by\nzero"), "internal error: ZeroDivisionError: by", 70),
        (RuntimeError(), "internal error: RuntimeError", 70),
    ],
)
def test_every_error_has_a_message_and_a_code(
    error: BaseException, message: str, code: int
) -> None:
    failure = describe(error)
    assert failure.message.startswith(message)
    assert failure.code == code


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def doctor() -> None:
        raise error

    monkeypatch.setattr(api, "doctor", doctor)


def test_an_internal_error_is_70_and_shows_no_traceback(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(monkeypatch, ZeroDivisionError("by zero [/x]"))
    done = invoke("doctor")
    assert done.code == ExitCode.INTERNAL
    assert done.out == ""
    assert done.err.startswith("error: internal error: ZeroDivisionError: by zero [/x]\nhint: ")
    assert "--traceback" in done.err
    assert "Traceback" not in done.err


def test_traceback_is_shown_when_asked_for(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, ZeroDivisionError("by zero"))
    done = invoke("--traceback", "doctor")
    assert done.code == ExitCode.INTERNAL
    assert "Traceback (most recent call last)" in done.err
    assert done.err.index("Traceback") < done.err.index("error: internal error")


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), MemoryError(), OSError(errno.ENOSPC, "full")]
)
def test_what_stops_a_run_is_2(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    raising(monkeypatch, error)
    done = invoke("doctor")
    assert done.code == ExitCode.CANNOT_JUDGE
    assert done.err.startswith("error: ")
    assert "Traceback" not in done.err


def test_json_mode_puts_the_error_on_stdout_too(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(monkeypatch, BundleError("cut", hint="run it again"))
    done = invoke("doctor", "--json")
    assert done.code == 2
    assert done.document == {
        "error": {"kind": "BundleError", "message": "cut", "hint": "run it again", "exit_code": 2}
    }
    assert done.err == "error: cut\nhint: run it again\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("runn",), "No such command 'runn'"),
        (("run", "--chunkk", "3"), "--chunk"),
        (("run", "anchor-a", "--chunk", "0"), "--chunk"),
        (("run", "anchor-a", "--dtype", "bf17"), "'bf16', 'fp16', 'fp32'"),
        (("determinism", "anchor-a", "--repeats", "1"), "--repeats"),
        (("diff-boundaries", "a"), "TARGET"),
        (("cases", "shoe"), "No such command 'shoe'"),
    ],
)
def test_a_wrong_command_line_is_2(invoke: Invoke, args: tuple[str, ...], message: str) -> None:
    done = invoke(*args)
    assert done.code == ExitCode.CANNOT_JUDGE
    assert done.out == ""
    assert message.lower() in done.err.lower()
    assert "Value error" not in done.err
    assert "--help` lists what it takes" in done.err


def test_a_wrong_command_line_in_json_mode(invoke: Invoke) -> None:
    done = invoke("run", "anchor-a", "--json", "--chunkk", "3")
    assert done.code == 2
    assert done.document["error"]["kind"] == "UsageError"
    assert "--chunkk" in done.document["error"]["message"]


def test_markup_and_control_characters_are_literal(invoke: Invoke) -> None:
    done = invoke("run", "no[/x]\x1b[31m")
    assert done.code == 2
    assert "no[/x]\\x1b[31m" in done.err
    assert "\x1b" not in done.err


class Broken:
    """A stdout that cannot take the answer."""

    encoding = "utf-8"

    def __init__(self, error: OSError) -> None:
        self.error = error

    def write(self, text: str) -> int:
        raise self.error

    def flush(self) -> None:
        raise self.error

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "no descriptor")


def test_a_reader_that_left_is_no_error(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Broken(BrokenPipeError(errno.EPIPE, "Broken pipe")))
    for args in (("points",), ("points", "--json")):
        done = invoke(*args)
        assert done.code == ExitCode.NOTHING_FOUND
        assert done.err == ""


def test_a_full_disk_under_stdout_is_2(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Broken(OSError(errno.ENOSPC, "No space left on device")))
    for args in (("points",), ("points", "--json")):
        done = invoke(*args)
        assert done.code == ExitCode.CANNOT_JUDGE
        assert done.err == "error: stdout: No space left on device\n"


def test_a_closed_stdout_is_2(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    done = invoke("points")
    assert done.code == ExitCode.CANNOT_JUDGE
    assert done.err == "error: stdout is closed\n"


def test_a_bad_id_file_in_json_mode(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "ids.json"
    path.write_text(json.dumps({"a": 1}))
    done = invoke("run", "--model", "synthetic:gemma4-tiny", "--tokens", f"@{path}", "--json")
    assert done.code == 2
    assert str(path) in done.document["error"]["message"]
