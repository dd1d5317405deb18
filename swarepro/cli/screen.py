"""The Rich console of stdout. Imported only when a report is drawn: Rich costs start-up time."""

from typing import IO

from rich.console import Console
from rich.text import Text

from swarepro.report.model import Report
from swarepro.report.table import render


class _Screen(Console):
    """A console that leaves a closed pipe to its caller; Rich itself would exit with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def draw_on(file: IO[str], report: Report) -> None:
    """Draw ``report``: in colour on a terminal, plain elsewhere; commands are never wrapped."""
    screen = _Screen(file=file, highlight=False, markup=False, emoji=False)
    for part in render(report):
        screen.print(part, soft_wrap=isinstance(part, Text) and bool(part.no_wrap))
