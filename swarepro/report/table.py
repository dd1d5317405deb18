"""Reports as Rich renderables. Every value is a `Text`: nothing is ever read as markup."""

from collections.abc import Iterator

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from swarepro.report.model import Grid, Report, Tone

_STYLES = {Tone.GOOD: "bold green", Tone.BAD: "bold red", Tone.UNSURE: "bold yellow"}


def render(report: Report) -> Iterator[RenderableType]:
    """Yield the parts of a report, top to bottom, with a blank line around each table."""
    for line in report.preface:
        yield Text(line)
    yield Text(report.headline, style=_STYLES.get(report.tone, "bold"))
    for grid in report.grids:
        yield Text("")
        yield from render_grid(grid)
    if report.lines:
        yield Text("")
    for line in report.lines:
        yield Text(line)
    for command in report.commands:
        yield Text(command, style="cyan", no_wrap=True)


def render_grid(grid: Grid) -> Iterator[RenderableType]:
    """Yield title, table and note."""
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        header_style="bold",
    )
    for heading in grid.columns:
        right = heading.startswith(">")
        table.add_column(
            Text(heading.removeprefix(">")),
            justify="right" if right else "left",
            overflow="fold",
        )
    for row in grid.rows:
        table.add_row(*(Text(cell) for cell in row))
    if grid.title:
        yield Text(grid.title, style="bold")
    yield table
    if grid.note is not None:
        yield Text(grid.note, style="dim")
