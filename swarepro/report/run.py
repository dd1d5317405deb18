"""One run in words: what ran, what was captured, and who owns which KV slot."""

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from swarepro.bundle.schema import BackendEntry, Manifest, TensorRecord
from swarepro.report.model import Grid, Report, Tone, shortened
from swarepro.report.slots import ownership_grids, ownership_sentence
from swarepro.report.words import MISSING, count, listed, literal, size, span


def run_report(
    manifest: Manifest,
    *,
    bundle: Path,
    size_bytes: int,
    texts: Sequence[str | None] = (),
    unmatched: Sequence[str] = (),
) -> Report:
    """Report a finished run.

    Args:
        manifest: of its bundle.
        bundle: the folder.
        size_bytes: of all its files.
        texts: the generated tokens as text, by session, where the prompt was text.
        unmatched: globs of points that match nothing that this run has.
    """
    said = [f"Text: {literal(text)}" for text in texts if text is not None]
    problems = violations(manifest)
    ran = (
        f"Ran {literal(manifest.case.get('name', manifest.run_id))}:"
        f" {count(len(manifest.steps), 'step')} on {count(len(manifest.stages), 'stage')},"
        f" {count(manifest.num_records, 'point')} captured, {size(size_bytes)} on disk."
    )
    owned = ownership_sentence(manifest)
    return Report(
        headline=f"{owned} {ran}" if problems else f"{ran} {owned}",
        tone=Tone.BAD if problems else Tone.GOOD if manifest.shadow else Tone.PLAIN,
        grids=(steps_grid(manifest), *ownership_grids(manifest)),
        lines=(
            *_final_actions(manifest),
            facts_line(manifest),
            *tokens_lines(manifest),
            *said,
            *unmatched_lines(manifest, unmatched),
        ),
        commands=(f"bundle: {literal(bundle)}",),
    )


def inspect_report(
    manifest: Manifest, records: Sequence[TensorRecord], *, bundle: Path, verified: int
) -> Report:
    """Report what a bundle holds.

    Args:
        manifest: of the bundle.
        records: all of them.
        bundle: the folder.
        verified: tensors that were hashed and found as recorded.
    """
    stored = sum(record.file is not None for record in records)
    checked = f"{verified:,} of them verified" if verified else "not verified"
    environment = manifest.environment
    packages = ", ".join(f"{literal(k)} {literal(v)}" for k, v in environment.packages.items())
    lines = (
        *_final_actions(manifest),
        facts_line(manifest),
        *tokens_lines(manifest),
        ownership_sentence(manifest),
        f"Made {literal(manifest.created)} by swarepro {literal(environment.swarepro)}, Python"
        f" {literal(environment.python)}, on {literal(environment.platform)}"
        f" ({literal(environment.cpu)}, {literal(environment.gpu or 'no GPU')}); {packages}.",
    )
    return Report(
        headline=(
            f"{literal(manifest.run_id)}: {count(len(records), 'record')},"
            f" {count(stored, 'tensor')} stored, {checked};"
            f" {size(sum(entry.num_bytes for entry in manifest.files))} in"
            f" {count(len(manifest.files), 'file')}; schema version {manifest.schema_version}."
        ),
        tone=Tone.BAD if violations(manifest) else Tone.PLAIN,
        grids=(
            steps_grid(manifest, Counter((record.step, record.session) for record in records)),
            *ownership_grids(manifest),
            _points_grid(records),
        ),
        lines=lines,
        commands=(f"bundle: {literal(bundle)}",),
    )


def violations(manifest: Manifest) -> int:
    """Return the number of ownership violations of all stages and KV groups."""
    return sum(len(stage.violations) for stage in manifest.ownership)


def facts_line(manifest: Manifest) -> str:
    """Return model, device, faults and capture in one sentence."""
    backend, capture = manifest.backend, manifest.capture
    faults = f"faults {listed(manifest.faults, most=8)}" if manifest.faults else "no fault"
    fill = "" if backend.fill == "zero" else f", memory that nobody wrote filled: {backend.fill}"
    return (
        f"Model {literal(manifest.model)} ({count(manifest.num_layers, 'layer')},"
        f" {literal(backend.dtype)}) on {literal(backend.device)}{_engine(backend)},"
        f" route {literal(backend.route)}, schedule {literal(backend.schedule)}, {faults}{fill};"
        f" capture {capture.level}, store {capture.store}."
    )


def _engine(backend: BackendEntry) -> str:
    return "" if backend.engine == "paged" else f", engine {literal(backend.engine)}"


def tokens_lines(manifest: Manifest) -> list[str]:
    """Return one line for the generated tokens of each session."""
    several = len(manifest.tokens) > 1
    return [
        f"Tokens{f' of session {index}' if several else ''}: {listed(tokens, most=24)}."
        for index, tokens in enumerate(manifest.tokens)
    ]


def unmatched_lines(manifest: Manifest, unmatched: Sequence[str]) -> list[str]:
    """Say which of the points that were asked for this run does not have."""
    if not unmatched:
        return []
    backend = manifest.backend
    where = "this run" if backend.engine == "paged" else f"the engine {literal(backend.engine)}"
    return [
        f"Not captured: {listed(unmatched, most=12)}: {where} has no such boundary at level"
        f" {manifest.capture.level}."
    ]


def steps_grid(manifest: Manifest, records: Counter[tuple[int, int]] | None = None) -> Grid:
    """Return the table of steps, a line for each span and for each thing done before the step.

    Sessions and what was done are shown where there are several sessions or actions.

    Args:
        manifest: of the run.
        records: how many there are by step and session, where that is to be shown.
    """
    several = len(manifest.prompts) > 1 or any(step.actions for step in manifest.steps)
    columns = [">step", "phase"]
    columns += [">session", "before it"] if several else []
    columns += ["positions", ">rows"]
    columns += [">records"] if records is not None else []
    rows = []
    for step in manifest.steps:
        done = (*(["reset"] if step.reset else []), *(action.words for action in step.actions))
        shown = done if several else ()
        for index, (part, before) in enumerate(zip_longest(step.spans, shown or (MISSING,))):
            row = [str(step.index) if index == 0 else ""]
            row += ["" if part is None else part.phase or step.phase]
            row += ["" if part is None else str(part.session), before or ""] if several else []
            if part is None:
                row += [""] * (len(columns) - len(row))
            else:
                row += [span(part.start, part.end), f"{part.end - part.start:,}"]
                row += [f"{records[step.index, part.session]:,}"] if records is not None else []
            rows.append(tuple(row))
    return shortened("Steps", tuple(columns), rows)


def _final_actions(manifest: Manifest) -> list[str]:
    words = [action.words for action in manifest.final_actions]
    return [f"After the last step: {listed(words, most=12)}."] if words else []


def _points_grid(records: Sequence[TensorRecord]) -> Grid:
    """Return how often each declared point was captured, in the order of first appearance."""
    counts = Counter(record.point for record in records)
    stored = Counter(record.point for record in records if record.file is not None)
    kinds = {record.point: record.kind for record in records}
    rows = tuple(
        (literal(point), str(kinds[point]), f"{number:,}", f"{stored[point]:,}")
        for point, number in counts.items()
    )
    return Grid(
        title=f"{count(len(rows), 'captured point')}",
        columns=("point", "kind", ">records", ">stored"),
        rows=rows,
    )
