"""One run in words: what ran, what was captured, and who owns which SWA slot."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from swarepro.bundle.schema import Manifest, OwnerRange, StageEntry, StageOwnership, TensorRecord
from swarepro.report.model import Grid, Report, Tone, shortened
from swarepro.report.words import MISSING, count, listed, literal, ranges, size


def run_report(
    manifest: Manifest, *, bundle: Path, size_bytes: int, texts: Sequence[str | None] = ()
) -> Report:
    """Report a finished run.

    Args:
        manifest: of its bundle.
        bundle: the folder.
        size_bytes: of all its files.
        texts: the generated tokens as text, by session, where the prompt was text.
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
        tone=Tone.BAD if problems else Tone.GOOD,
        grids=(steps_grid(manifest), *ownership_grids(manifest)),
        lines=(facts_line(manifest), *tokens_lines(manifest), *said),
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
        facts_line(manifest),
        *tokens_lines(manifest),
        *([] if violations(manifest) else [ownership_sentence(manifest)]),
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
            steps_grid(manifest, Counter(record.step for record in records)),
            *ownership_grids(manifest),
            _points_grid(records),
        ),
        lines=lines,
        commands=(f"bundle: {literal(bundle)}",),
    )


def violations(manifest: Manifest) -> int:
    """Return the number of ownership violations of all stages."""
    return sum(len(stage.violations) for stage in manifest.ownership)


def facts_line(manifest: Manifest) -> str:
    """Return model, device, faults and capture in one sentence."""
    backend, capture = manifest.backend, manifest.capture
    faults = f"faults {listed(manifest.faults, most=8)}" if manifest.faults else "no fault"
    return (
        f"Model {literal(manifest.model)} ({count(manifest.num_layers, 'layer')},"
        f" {literal(backend.dtype)}) on {literal(backend.device)}, route {literal(backend.route)},"
        f" schedule {literal(backend.schedule)}, {faults};"
        f" capture {capture.level}, store {capture.store}."
    )


def tokens_lines(manifest: Manifest) -> list[str]:
    """Return one line for the generated tokens of each session."""
    several = len(manifest.tokens) > 1
    return [
        f"Tokens{f' of session {index}' if several else ''}: {listed(tokens, most=24)}."
        for index, tokens in enumerate(manifest.tokens)
    ]


def ownership_sentence(manifest: Manifest) -> str:
    """Say in one sentence whether the SWA slots are owned as they should be."""
    problems = violations(manifest)
    if problems:
        return f"The ownership report has {count(problems, 'violation')}."
    if not manifest.ownership:
        return "No stage has sliding layers, so no SWA slot is owned."
    return "Every stored position owns an SWA slot of its own."


def steps_grid(manifest: Manifest, records: Counter[int] | None = None) -> Grid:
    """Return the table of steps; sessions and resets only where there are several sessions."""
    several = len(manifest.prompts) > 1
    columns = [">step", "phase"]
    columns += [">session", "reset"] if several else []
    columns += ["positions", ">rows"]
    columns += [">records"] if records is not None else []
    rows = []
    for step in manifest.steps:
        row = [str(step.index), str(step.phase)]
        if several:
            row += [ranges(sorted({span.session for span in step.spans}))]
            row += ["before it" if step.reset else MISSING]
        row += [", ".join(_span(span.start, span.end) for span in step.spans)]
        row += [f"{sum(span.end - span.start for span in step.spans):,}"]
        row += [f"{records[step.index]:,}"] if records is not None else []
        rows.append(tuple(row))
    return shortened("Steps", tuple(columns), rows)


def ownership_grids(manifest: Manifest) -> tuple[Grid, ...]:
    """Return who owns the SWA slots of each stage, and the violations if there are any."""
    if not manifest.ownership:
        return ()
    rows = tuple(
        (
            str(stage.stage),
            _layers(manifest.stages, stage.stage),
            f"{stage.capacity:,}",
            f"{stage.free:,}",
            f"{stage.live:,}",
            f"{stage.positions:,}",
            _owners(stage),
            f"{len(stage.violations):,}",
        )
        for stage in manifest.ownership
    )
    columns = (
        ">stage",
        "layers",
        ">capacity",
        ">free",
        ">live",
        ">stored",
        "position -> slot",
        ">violations",
    )
    grids = [Grid(title="SWA slots at the end of the run", columns=columns, rows=rows)]
    problems: list[tuple[str, ...]] = [
        (
            str(stage.stage),
            str(problem.step),
            literal(problem.kind),
            ranges(problem.positions, most=3),
            ranges(problem.slots, most=3),
            literal(problem.message),
        )
        for stage in manifest.ownership
        for problem in stage.violations
    ]
    if problems:
        headings = (">stage", ">step", "kind", "positions", "slots", "what it means")
        title = f"{count(len(problems), 'ownership violation')}"
        grids.append(shortened(title, headings, problems))
    return tuple(grids)


def _owners(stage: StageOwnership) -> str:
    if not stage.owners:
        return "no position owns a slot"
    several = len({owner.session for owner in stage.owners}) > 1
    return listed([_owner(owner, several) for owner in stage.owners], most=3)


def _owner(owner: OwnerRange, several: bool) -> str:
    positions = _span(owner.start, owner.start + len(owner.slots))
    prefix = f"session {owner.session}: " if several else ""
    shared = len(owner.slots) > 1 and len(set(owner.slots)) == 1
    slots = f"{owner.slots[0]} for all" if shared else ranges(owner.slots, most=3)
    return f"{prefix}{positions} -> {slots}"


def _span(start: int, end: int) -> str:
    return str(start) if end == start + 1 else f"{start}-{end - 1}"


def _layers(stages: tuple[StageEntry, ...], rank: int) -> str:
    if rank >= len(stages):
        return MISSING
    return f"{stages[rank].layer_start}-{stages[rank].layer_end - 1}"


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
