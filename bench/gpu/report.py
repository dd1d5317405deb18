"""What the parts of the check give back, as one table and one JSON. No torch here."""

import json
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table.

    Attributes:
        part: tests, defect or speed.
        what: was looked at.
        seen: what it showed.
        aim: what is wanted.
        ok: whether ``seen`` meets ``aim``; None where there is no aim, or nothing was seen.
        judged: whether the exit code depends on it.
        figures: all numbers, for the JSON.
    """

    part: str
    what: str
    seen: str
    aim: str
    ok: bool | None
    judged: bool
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """What the last column says."""
        if self.judged:
            return "yes" if self.ok else "NO"
        return {None: "", True: "met", False: "missed"}[self.ok]


@dataclass(slots=True, kw_only=True)
class Report:
    """Everything that is known so far; the rows grow while the check runs."""

    machine: dict[str, Any]
    minutes: float
    parts: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 when everything that is judged holds; what was skipped or broke does not."""
        done = {row.part for row in self.rows}
        holds = all(row.ok for row in self.rows if row.judged) and done >= set(self.parts)
        return 0 if holds else 1

    def table(self) -> Table:
        """Return the table for a terminal."""
        machine = self.machine
        title = ", ".join(
            (
                f"{machine.get('device', 'no device')}",
                f"torch {machine.get('torch', '?')}",
                f"triton {machine.get('triton', '?')}",
            )
        )
        table = Table(title=Text(title))
        for column in ("what", "seen", "aim"):
            table.add_column(column, overflow="fold")
        table.add_column("ok?")
        for row in self.rows:
            cells = (f"{row.part}: {row.what}", row.seen, row.aim, row.verdict)
            table.add_row(*map(Text, cells))
        return table

    def write(self, path: Path | None) -> None:
        """Write the JSON, whole or not at all; nothing for None."""
        if path is None:
            return
        document = {
            "machine": self.machine,
            "minutes": self.minutes,
            "parts": self.parts,
            "seconds": {part: round(value, 1) for part, value in self.seconds.items()},
            "exit_code": self.exit_code,
            "rows": [asdict(row) for row in self.rows],
        }
        beside = path.with_name(f"{path.name}.part")
        beside.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        beside.replace(path)


class Clock:
    """How much of the time is left.

    Args:
        seconds: in all, from now.
        now: the time in seconds.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._seconds = seconds
        self._start = now()

    @property
    def left(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._seconds - (self._now() - self._start))

    @property
    def is_over(self) -> bool:
        """Whether nothing new is begun."""
        return self.left == 0.0


def guarded(
    part: str,
    what: str,
    work: Callable[[], Iterable[Row]],
    *,
    clock: Clock,
    judged: bool,
    say: Callable[[str], None],
) -> list[Row]:
    """Return the rows of ``work``, or one that says why there are none.

    Args:
        part: for the row.
        what: for the row.
        work: gives rows; whatever it raises becomes a row that fails.
        clock: when it is over, ``work`` is skipped.
        judged: whether a skipped ``work`` counts.
        say: told what happens.
    """
    if clock.is_over:
        seen = "skipped: the time is up"
        say(f"{part}: {what}: {seen}")
        ok = False if judged else None
        return [Row(part=part, what=what, seen=seen, aim="", ok=ok, judged=judged)]
    say(f"{part}: {what} ...")
    try:
        return list(work())
    except Exception as error:
        return [failure(part, what, error)]


def failure(part: str, what: str, error: Exception) -> Row:
    """Return the row of a part that broke."""
    lines = str(error).strip().splitlines() or [""]
    return Row(
        part=part,
        what=what,
        seen=f"{type(error).__name__}: {lines[0][:300]}",
        aim="no error",
        ok=False,
        judged=True,
        figures={"traceback": "".join(traceback.format_exception(error))[-6000:]},
    )
