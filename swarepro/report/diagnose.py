"""The conclusions of a diagnosis on one page, and as data."""

from collections.abc import Sequence
from typing import Any

import msgspec

from swarepro.evidence.conclusions import Boundary, Conclusions, OfCase, Tried, Varies
from swarepro.report.conditions import condition_sentence
from swarepro.report.model import Grid, Report, Tone
from swarepro.report.words import MISSING, listed, literal

_TONES = {
    "LOCALIZED": Tone.BAD,
    "PARTIAL": Tone.BAD,
    "DETERMINISTIC_BUT_WRONG": Tone.BAD,
    "INSUFFICIENT_EVIDENCE": Tone.UNSURE,
    "BLOCKED": Tone.UNSURE,
    "NOT_REPRODUCED": Tone.GOOD,
}
_UNJUDGED = ("NOT_APPLICABLE", "REFUSED")


def diagnose_report(found: Conclusions, *, folder: str) -> Report:
    """Say what varies, where first, what it harms, what is ruled out, and what is shown.

    Args:
        found: the conclusions.
        folder: of the evidence.
    """
    cases = (*found.anchors, *(() if found.control is None else (found.control,)))
    grids = []
    if cases:
        grids.append(_cases(cases, found.control))
    if any(case.factors for case in found.anchors):
        grids.append(_factors(found.anchors))
    grids.append(_conditions(found))
    return Report(
        headline=f"{found.answer}: {_sentence(found)}",
        tone=_TONES[found.answer],
        grids=tuple(grids),
        lines=tuple(_lines(found)),
        commands=(f"swarepro conclude {literal(folder)}", *_again(found, folder)),
    )


def diagnose_document(found: Conclusions, *, folder: str) -> dict[str, Any]:
    """Return what ``--json`` prints: the conclusions, and where the evidence is."""
    document: dict[str, Any] = msgspec.to_builtins(found)
    for condition in document["conditions"]:
        condition["found"] = condition_sentence(found, condition["name"])
    return {"evidence": folder, **document}


def _sentence(found: Conclusions) -> str:
    harmed = [case for case in found.anchors if case.baseline.first_value is not None]
    if found.answer == "BLOCKED":
        return f"{len(found.failures)} of the units of work ended with an error."
    if found.answer == "NOT_REPRODUCED":
        runs = ", ".join(f"{c.case} {c.baseline.trials} repeats" for c in found.anchors)
        return f"no value varies ({runs}); state alone may, and a stable value may be wrong."
    if found.answer == "DETERMINISTIC_BUT_WRONG":
        case = next(c for c in found.anchors if c.against is not None and c.against.differing)
        against = case.against
        assert against is not None  # noqa: S101  # chosen so
        return (
            f"no value of {case.case} varies in {case.baseline.trials} repeats, yet"
            f" {against.differing} of {against.compared} values differ from the reference, first"
            f" {against.first}."
        )
    if not harmed:
        return "the values vary only when less, or more, is captured than in the baseline."
    place = _place(_first_located(harmed))
    if found.answer == "LOCALIZED":
        return (
            f"from one state the earliest boundary that varies is {place};"
            f" {listed(found.stabilisers, most=4)}"
            f" {'makes' if len(found.stabilisers) == 1 else 'make'} every anchor stable."
        )
    if found.answer == "PARTIAL":
        lacking = [c.name for c in found.conditions if not c.met]
        return (
            f"from one state the earliest boundary that varies is {place}; what is lacking:"
            f" {listed(lacking, most=6)}."
        )
    return "values vary from scratch, yet not from one restored state."


def _first_located(cases: Sequence[OfCase]) -> Boundary | None:
    for case in cases:
        if case.replay is not None and case.replay.found.earliest is not None:
            return case.replay.found.earliest
    return cases[0].baseline.first_value


def _cases(cases: Sequence[OfCase], control: OfCase | None) -> Grid:
    return Grid(
        title="What varies, from scratch",
        columns=("case", ">repeats", ">varying", "earliest", "first value harmed"),
        rows=tuple(
            (
                f"{literal(case.case)}{' (control)' if case is control else ''}",
                str(case.baseline.trials),
                f"{case.baseline.varying} of {case.baseline.boundaries}",
                _place(case.baseline.earliest),
                _place(case.baseline.first_value),
            )
            for case in cases
        ),
    )


def _factors(anchors: Sequence[OfCase]) -> Grid:
    names = [tried.factor for tried in max((a.factors for a in anchors), key=len)]
    rows = []
    for name in names:
        cells = []
        for anchor in anchors:
            tried = next((each for each in anchor.factors if each.factor == name), None)
            cells.append(MISSING if tried is None else _verdict(tried))
        rows.append((literal(name), *cells))
    return Grid(
        title="One variable changed: how many trials differ in a value, without and with it",
        columns=("factor", *(literal(anchor.case) for anchor in anchors)),
        rows=tuple(rows),
    )


def _verdict(tried: Tried) -> str:
    if tried.control is None or tried.treatment is None:
        return tried.verdict
    return f"{tried.verdict} ({_distinct(tried.control)}, {_distinct(tried.treatment)})"


def _distinct(arm: Varies) -> str:
    return f"{arm.distinct} of {arm.trials}"


def _conditions(found: Conclusions) -> Grid:
    return Grid(
        title="What the answer rests on",
        columns=("condition", "met", "by what"),
        rows=tuple(
            (c.name, "yes" if c.met else "no", literal(condition_sentence(found, c.name)))
            for c in found.conditions
        ),
    )


def _lines(found: Conclusions) -> list[str]:
    lines = []
    for case in found.anchors:
        if case.ownership is not None:
            lines.append(f"Ownership, {literal(case.case)}: {literal(case.ownership)}.")
    if found.rejected:
        cautioned = {t.factor for c in found.anchors for t in c.factors if t.caution is not None}
        names = [f"{x} (read its caution)" if x in cautioned else x for x in found.rejected]
        lines.append(f"Ruled out on every anchor: {listed(names, most=8)}.")
    if found.order_alone:
        lines.append(
            f"The order of launches matters: {listed(found.order_alone, most=4)} takes away what"
            " varies. That is no cause yet."
        )
    reasons = {
        f"{tried.factor} is {tried.verdict}: {tried.reason}": None
        for case in found.anchors
        for tried in case.factors
        if tried.verdict in _UNJUDGED
    }
    reasons |= {
        f"{tried.factor}: {tried.caution}": None
        for case in found.anchors
        for tried in case.factors
        if tried.caution is not None
    }
    lines += [f"{literal(reason)}." for reason in reasons]
    noun = "process was" if found.launches == 1 else "processes were"
    lines.append(f"{found.launches} {noun} launched.")
    return lines


def _again(found: Conclusions, folder: str) -> list[str]:
    located = [case for case in found.anchors if case.replay is not None]
    return [f"swarepro replay --from {literal(folder)}/states/{located[0].case}"] if located else []


def _place(boundary: Boundary | None) -> str:
    if boundary is None:
        return MISSING
    session = f" session {boundary.session}" if boundary.session else ""
    return f"step {boundary.step}{session} {literal(boundary.name)}"
