"""Where a command's answer goes: a report or one JSON document, on stdout and nowhere else."""

import errno
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from swarepro.report.model import Report


def emit(
    *, as_json: bool, document: Callable[[], dict[str, Any]], report: Callable[[], Report]
) -> None:
    """Print the JSON document, or draw the report."""
    if as_json:
        emit_json(document())
    else:
        draw(report())


def emit_json(document: dict[str, Any]) -> None:
    """Print one JSON document; NaN and infinities become null."""
    from swarepro.report.jsonout import finite

    write(json.dumps(finite(document), allow_nan=False) + "\n")


def draw(report: Report) -> None:
    """Draw the report with Rich."""
    from swarepro.cli.screen import draw_on

    with _stdout() as stdout:
        draw_on(stdout, report)


def write(text: str) -> None:
    """Write to stdout as it is."""
    with _stdout() as stdout:
        stdout.write(text)


@contextmanager
def _stdout() -> Iterator[TextIO]:
    """Lend stdout and flush it. A reader that has gone (``| head``) is no error.

    Raises:
        OSError: stdout cannot take the answer, e.g. the disk is full.
    """
    if sys.stdout is None:
        raise OSError(errno.EBADF, "stdout is closed")
    try:
        yield sys.stdout
        sys.stdout.flush()
    except OSError as error:
        _discard_stdout()
        if not isinstance(error, BrokenPipeError):
            raise OSError(error.errno, error.strerror, "stdout") from error


def complain(text: str) -> None:
    """Write to stderr, if anyone can read it."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        pass


def _discard_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush cannot fail again."""
    try:
        descriptor = sys.stdout.fileno()
    except OSError:
        return
    devnull = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(devnull, descriptor)
    finally:
        os.close(devnull)
