"""Progress on stderr, and only where a person watches it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from swarepro.report.words import literal

if TYPE_CHECKING:
    from swarepro.api import Progress


@contextmanager
def progress_on_stderr() -> "Iterator[Progress]":
    """Yield a callback that draws a bar for each thing being done; silent without a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield _silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed

    tasks: dict[str, TaskID] = {}
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        Elapsed(),
        console=Console(stderr=True),
        transient=True,
    ) as bars:

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(literal(what), total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield show


def _silent(what: str, done: int, total: int) -> None:
    """Show nothing."""
