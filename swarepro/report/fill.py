"""What depends on the fill of memory that nobody wrote, in words."""

from collections.abc import Sequence
from typing import Any

from swarepro.compare.fills import FillDependence, FillProbe
from swarepro.report.model import Grid, Report, Tone, shortened
from swarepro.report.words import count, listed, literal

_MEANS = {
    "UNWRITTEN_READ": "a finite value shows, so memory that nobody wrote was read and used",
    "MASKED_LANE": (
        "NaN alone shows, so it was only multiplied by zero in a masked lane: harmless as long as"
        " that memory is finite"
    ),
}


def fill_report(found: FillProbe) -> Report:
    """Say whether a run depends on the fill, where first, and what kind of read it was."""
    several = len({each.session for each in (*found.by_large, *found.by_nan)}) > 1
    return Report(
        headline=_headline(found),
        tone=Tone.GOOD if found.first is None else Tone.BAD,
        grids=tuple(
            _grid(
                f"{count(len(rows), 'boundary')} that differ between zeros and {fill}",
                rows,
                several,
            )
            for fill, rows in (("a large fill", found.by_large), ("a fill of NaN", found.by_nan))
            if rows
        ),
        lines=(
            f"Case {literal(found.case)}: pools and scratch were filled with zeros, with 1e4 and"
            f" with NaN; {count(found.compared, 'boundary')} compared, bitwise."
            f"{_left_out(found)}",
        ),
    )


def _headline(found: FillProbe) -> str:
    first = found.first
    if first is None:
        return f"INDEPENDENT: no boundary of {found.compared:,} depends on the fill."
    masked = found.first_masked
    if found.verdict == "UNWRITTEN_READ" and masked is not None:
        return (
            f"{found.verdict}: step {first.step}, {literal(first.name)} is the first boundary that"
            f" depends on a large fill; {_MEANS['UNWRITTEN_READ']}. Besides, a MASKED_LANE:"
            f" step {masked.step}, {literal(masked.name)} is the first that depends on NaN, and it"
            " depends on NaN alone."
        )
    return (
        f"{found.verdict}: step {first.step}, {literal(first.name)} is the first boundary that"
        f" depends on the fill; {_MEANS[found.verdict]}."
    )


def _left_out(found: FillProbe) -> str:
    if not found.left_out:
        return ""
    return f" Left out: {listed(found.left_out, most=4)}, which hold the fill rightly."


def _grid(title: str, rows: Sequence[FillDependence], several: bool) -> Grid:
    columns = (">step", ">stage", *([">session"] if several else []), "boundary", "kind")
    return shortened(
        title,
        columns,
        [
            (
                str(row.step),
                str(row.stage),
                *([str(row.session)] if several else []),
                literal(row.name),
                str(row.kind),
            )
            for row in rows
        ],
    )


def fill_document(found: FillProbe) -> dict[str, Any]:
    """Return what `swarepro fill-probe --json` prints."""
    return {
        "case": found.case,
        "verdict": found.verdict,
        "first": None if found.first is None else _row(found.first),
        "first_masked": None if found.first_masked is None else _row(found.first_masked),
        "compared": found.compared,
        "left_out": list(found.left_out),
        "by_large": [_row(row) for row in found.by_large],
        "by_nan": [_row(row) for row in found.by_nan],
    }


def _row(found: FillDependence) -> dict[str, Any]:
    return {
        "step": found.step,
        "stage": found.stage,
        "session": found.session,
        "name": found.name,
        "kind": str(found.kind),
    }
