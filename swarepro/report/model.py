"""What a report is before it is drawn: sentences and grids of plain text.

The functions of this package turn results into a `Report`; `table` draws one on a terminal.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Tone(StrEnum):
    """How a headline reads: nothing found, a finding, or no judgement."""

    GOOD = "good"
    BAD = "bad"
    UNSURE = "unsure"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table of plain text.

    Attributes:
        title: one line above it, or empty.
        columns: headings; one that starts with ``>`` is aligned to the right.
        rows: cells, as many as columns.
        note: one line below it, or None.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str | None = None

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{self.title}: {len(row)} cells for {len(self.columns)} columns")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a command answers.

    Attributes:
        preface: what to know before the answer is read, in sentences above it.
        headline: the answer in one sentence.
        tone: of the headline.
        grids: tables, in order.
        lines: sentences after the tables.
        commands: what to run or open next; never wrapped, so that they can be copied.
    """

    headline: str
    tone: Tone
    grids: tuple[Grid, ...] = ()
    lines: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    preface: tuple[str, ...] = ()


def shortened(
    title: str,
    columns: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    *,
    most: int = 12,
    keep: int | None = None,
) -> Grid:
    """Return a grid of the first ``most`` rows that says how many it leaves out.

    Row ``keep`` is shown wherever it lies: after an ellipsis when it is not among the first.
    """
    shown, rest = list(rows[:most]), len(rows) - most
    if keep is not None and keep >= most:
        if keep > most:
            shown.append(("...", *("" for _ in columns[1:])))
        shown.append(rows[keep])
        rest -= 1
    note = f"... and {rest:,} more; --json lists all" if rest > 0 else None
    return Grid(title=title, columns=columns, rows=tuple(shown), note=note)
