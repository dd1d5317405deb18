"""Which detector finds what: the table of the shipped cases."""

from collections.abc import Sequence
from typing import Protocol

from swarepro.report.model import Grid
from swarepro.report.words import MISSING, literal

_PAGE = """# What each detector answers to each fault

Written by `make detection` from the shipped cases, which `swarepro cases run --all` judges: each
states what every detector must say of its fault, and must be silent without it. Silence where a
report says that a detector sees nothing is demanded as much as a finding. `@3 NAME` is boundary
NAME at step 3.

- **ownership**: `swarepro ownership CASE --fault FAULT`, one run, no reference: the first broken
  rule, its step and layer.
- **diff**: `swarepro diff-boundaries` of the healthy run and the faulty one: the first divergence
  of the strongest kind (value before state before metadata). Where the healthy run is rightly
  refused, the baseline is the same work in pools that have room, or without eviction; where memory
  that nobody wrote decides, both runs are filled alike, not with zeros; where the order of launches
  decides, both run under one seed. The case says so.
- **floor**: `swarepro diff-boundaries --floor` of the same two runs, against what `swarepro
  calibrate CASE` measures: wrong, rounding, or a tie, and by how much predictions may move.
- **determinism**: `swarepro determinism CASE --fault FAULT`: where repeats begin to vary, or the
  error that ends the run.
- **fill-probe**: `swarepro fill-probe CASE --fault FAULT`: the first boundary that depends on
  memory that nobody wrote.

Mechanisms are named as in the reports of this field: A slots, mapping and allocator; B windows and
the pattern of layers; C chunked prefill; D decode and reuse; E memory and timing; F numerics;
G stages; H tools, and what was blamed on the cache. Many prompts hide a mechanism: no longer than
the window, one chunk, one stage, a position 0, no image, a dtype that has nothing to round. These
are cases, too, and values stay silent.

"""


class Row(Protocol):
    """What the table shows of a case; `swarepro.runs.results.DetectionRow` is one."""

    @property
    def case(self) -> str:
        """Its name."""

    @property
    def summary(self) -> str:
        """One sentence."""

    @property
    def fault(self) -> str | None:
        """Its fault's name."""

    @property
    def mechanism(self) -> str:
        """Of the reports, or empty."""

    @property
    def ownership(self) -> str:
        """First violation."""

    @property
    def diff(self) -> str:
        """First divergence."""

    @property
    def floor(self) -> str:
        """What the divergence is against a noise floor."""

    @property
    def determinism(self) -> str:
        """What repeats show."""

    @property
    def fill(self) -> str:
        """What the fill probe shows."""

    @property
    def healthy_error(self) -> str | None:
        """Error of the healthy arm."""


def detection_grid(rows: Sequence[Row], ok: Sequence[bool]) -> Grid:
    """Return the table; ``ok`` says of each row whether the case was met."""
    return Grid(
        title="",
        columns=("case", "ownership, one run", "diff", "determinism", ""),
        rows=tuple(
            (
                literal(row.case),
                literal(row.ownership),
                literal(row.diff),
                literal(row.determinism.removeprefix("varies from ").partition(" ")[0])
                if row.determinism.startswith("varies")
                else literal(row.determinism),
                "ok" if good else "NO",
            )
            for row, good in zip(rows, ok, strict=True)
        ),
        note="@3: at step 3; under determinism, where repeats begin to vary. docs/detection.md has"
        " mechanisms and the fill probe, too.",
    )


def detection_page(rows: Sequence[Row]) -> str:
    """Return docs/detection.md."""
    lines = [
        "| mechanism | case | fault | ownership | diff | floor | determinism | fill-probe |",
        "|---|---|---|---|---|---|---|---|",
    ]
    by_mechanism = sorted(rows, key=lambda row: (row.mechanism == "", _order(row.mechanism)))
    for row in by_mechanism:
        fault = MISSING if row.fault is None else f"`{row.fault}`"
        cells = (row.ownership, row.diff, row.floor, row.determinism, row.fill)
        shown = " | ".join(f"`{cell}`" if "@" in cell else cell for cell in cells)
        lines.append(f"| {row.mechanism or MISSING} | `{row.case}` | {fault} | {shown} |")
    meanings = ["", "## The cases", ""]
    for row in by_mechanism:
        refused = (
            ""
            if row.healthy_error is None
            else f" (rightly refused without it: {row.healthy_error})"
        )
        meanings.append(f"- `{row.case}`: {row.summary}{refused}.")
    return _PAGE + "\n".join([*lines, *meanings]) + "\n"


def _order(mechanism: str) -> tuple[str, int]:
    return mechanism[:1], int(mechanism[1:] or 0)
