"""Imports and exports in words and as JSON data."""

from typing import Any

from swarepro.foreign.results import ExportResult, ImportResult, RuleOutcome
from swarepro.report.model import Grid, Report, Tone, shortened
from swarepro.report.words import MISSING, count, listed, literal, ranges, size, span


def import_report(result: ImportResult) -> Report:
    """Report what became of a dump."""
    problems = result.problems
    matched = sum(rule.boundaries for rule in result.rules)
    found = (
        f"{count(result.num_found, 'tensor')} of {literal(result.engine)},"
        f" {count(matched, 'boundary')} matched"
    )
    if problems:
        headline = f"Not importable: {literal(problems[0])}. {found}."
    elif result.bundle is None:
        headline = (
            f"Importable: {found}, {count(result.num_records, 'record')}, {size(result.num_bytes)}."
            " Nothing was written."
        )
    else:
        headline = f"Imported {found}: {count(result.num_records, 'record')}."
    unused = _unused(result)
    return Report(
        headline=headline,
        tone=Tone.BAD if problems else Tone.GOOD,
        grids=(
            *_matched(result),
            *_spans(result),
            *_lines("Refused", result.refusals),
            *_lines("Ambiguous: two tensors for one boundary", result.ambiguous),
            *_lines("Incomplete: a source or a rank is missing", result.incomplete),
            *_missing(result),
            *_unmatched(result),
        ),
        lines=(
            *(f"Allowed by the map: {literal(what)}." for what in result.allowed),
            *map(literal, result.notes),
            *(
                [f"{count(result.skipped, 'tensor')} left out by the map."]
                if result.skipped
                else ()
            ),
            *([f"No name matches: {listed(unused, most=6)}."] if unused else ()),
        ),
        commands=() if result.bundle is None else (f"bundle: {literal(result.bundle)}",),
    )


def _unused(result: ImportResult) -> tuple[str, ...]:
    """Return the points of the map that no rule gave."""
    given = {rule.point for rule in result.rules if rule.boundaries}
    return tuple(dict.fromkeys(rule.point for rule in result.rules if rule.point not in given))


def _matched(result: ImportResult) -> tuple[Grid, ...]:
    rows = [
        (
            rule.point,
            literal(" + ".join(rule.patterns)),
            f"{rule.boundaries:,}",
            ranges(rule.layers) if rule.layers else MISSING,
            ranges(rule.steps),
            f"{rule.ranks}",
        )
        for rule in result.rules
        if rule.boundaries
    ]
    if not rows:
        return ()
    columns = ("point", "from", ">boundaries", "layers", "steps", ">ranks")
    return (shortened("Matched", columns, rows, most=64),)


def _spans(result: ImportResult) -> tuple[Grid, ...]:
    rows = [
        (str(one.step), str(one.number), one.phase, str(one.session), span(one.start, one.end))
        for one in result.spans
    ]
    columns = (">step", ">of the engine", "phase", ">session", "positions")
    return (shortened("Steps", columns, rows),) if rows else ()


def _missing(result: ImportResult) -> tuple[Grid, ...]:
    rows = [(rule.point, rule.missing) for rule in result.rules if rule.missing]
    title = "Missing: other points have these steps and layers"
    return (shortened(title, ("point", "missing"), rows, most=64),) if rows else ()


def _unmatched(result: ImportResult) -> tuple[Grid, ...]:
    rows = [(literal(name), f"{number:,}") for name, number in result.unmatched_names]
    title = "Unmatched: no pattern of the map takes these"
    return (shortened(title, ("name", ">tensors"), rows),) if rows else ()


def _lines(title: str, words: tuple[str, ...]) -> tuple[Grid, ...]:
    rows = [(literal(word),) for word in words]
    return (shortened(title, ("what",), rows, most=8),) if rows else ()


def import_document(result: ImportResult) -> dict[str, Any]:
    """Return what `swarepro import --json` prints."""
    return {
        "engine": result.engine,
        "source": str(result.source),
        "bundle": None if result.bundle is None else str(result.bundle),
        "importable": not result.problems,
        "tensors": result.num_found,
        "records": result.num_records,
        "num_bytes": result.num_bytes,
        "matched": [_rule(rule) for rule in result.rules if rule.boundaries],
        "unused": list(_unused(result)),
        "missing": [
            {"point": rule.point, "missing": rule.missing} for rule in result.rules if rule.missing
        ],
        "unmatched": list(result.unmatched),
        "skipped": result.skipped,
        "ambiguous": list(result.ambiguous),
        "incomplete": list(result.incomplete),
        "refusals": list(result.refusals),
        "allowed": list(result.allowed),
        "notes": list(result.notes),
        "steps": [
            {
                "step": one.step,
                "engine_step": one.number,
                "phase": one.phase,
                "session": one.session,
                "start": one.start,
                "end": one.end,
            }
            for one in result.spans
        ],
    }


def _rule(rule: RuleOutcome) -> dict[str, Any]:
    return {
        "point": rule.point,
        "patterns": list(rule.patterns),
        "boundaries": rule.boundaries,
        "layers": list(rule.layers),
        "steps": list(rule.steps),
        "ranks": rule.ranks,
    }


def export_report(result: ExportResult) -> Report:
    """Report what an export wrote."""
    left = f" {count(result.left_out, 'record')} had a digest only." if result.left_out else ""
    return Report(
        headline=(
            f"Exported {count(result.num_tensors, 'tensor')} into"
            f" {count(len(result.files), 'safetensors file')} and an index,"
            f" {size(result.num_bytes)}.{left}"
        ),
        tone=Tone.GOOD,
        commands=(f"folder: {literal(result.directory)}",),
    )


def export_document(result: ExportResult) -> dict[str, Any]:
    """Return what `swarepro export --json` prints."""
    return {
        "directory": str(result.directory),
        "files": [str(path) for path in result.files],
        "tensors": result.num_tensors,
        "left_out": result.left_out,
        "num_bytes": result.num_bytes,
    }
