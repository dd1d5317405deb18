"""A run against a baseline in words: where it parts from it first, and what was stored of that."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from swarepro.bundle.schema import Manifest, TensorRecord
from swarepro.compare.types import Against, Divergence, Verdict
from swarepro.points import PointKind
from swarepro.report.diff import diff_report
from swarepro.report.jsonout import Document, diff_document, run_document
from swarepro.report.model import Grid, Report, Tone, shortened
from swarepro.report.run import facts_line, tokens_lines, unmatched_lines, violations
from swarepro.report.slots import ownership_sentence
from swarepro.report.words import count, literal, size


def against_report(
    manifest: Manifest,
    against: Against,
    *,
    bundle: Path,
    size_bytes: int,
    texts: Sequence[str | None] = (),
    unmatched: Sequence[str] = (),
) -> Report:
    """Say where a run parts from its baseline, what is stored of that, and what to do next.

    Args:
        manifest: of the bundle that the run wrote.
        against: how it compares.
        bundle: its folder.
        size_bytes: of all its files.
        texts: the generated tokens as text, by session, where the prompt was text.
        unmatched: globs of points that match nothing that this run has.
    """
    found = against.divergence
    shown = diff_report(found, on_disk=False)
    said = [f"Text: {literal(text)}" for text in texts if text is not None]
    owned = ownership_sentence(manifest)
    is_bad = violations(manifest) > 0 and found.verdict is Verdict.IDENTICAL
    return replace(
        shown,
        tone=Tone.BAD if is_bad else shown.tone,
        headline=" ".join((shown.headline, *_ended_early(against), *([owned] if is_bad else []))),
        grids=(*shown.grids, *_stored_grid(against)),
        lines=(
            *shown.lines,
            *_advice(against),
            *_waited(manifest),
            _ran(manifest, against, size_bytes),
            *([] if is_bad else [owned]),
            facts_line(manifest),
            *tokens_lines(manifest),
            *said,
            *unmatched_lines(manifest, unmatched),
        ),
        commands=(
            f"bundle: {literal(bundle)}",
            *_next(found, bundle),
        ),
    )


def against_document(
    manifest: Manifest,
    against: Against,
    *,
    bundle: Path,
    size_bytes: int,
    texts: Sequence[str | None] = (),
    unmatched: Sequence[str] = (),
) -> Document:
    """Return what `swarepro run --against BUNDLE --json` prints.

    It is what `swarepro run --json` prints, with ``against``: what `swarepro diff-boundaries
    --json` prints of the baseline and the new bundle, and beside it what ran and what is stored.
    """
    return {
        **run_document(
            manifest, bundle=bundle, size_bytes=size_bytes, texts=texts, unmatched=unmatched
        ),
        "against": {
            **diff_document(against.divergence),
            "steps_run": against.steps_run,
            "steps_planned": against.steps_planned,
            "steps_baseline": against.steps_baseline,
            "stored": [_stored(record) for record in against.stored],
            "in_baseline": against.in_baseline,
            "peak_bytes": against.peak_bytes,
        },
    }


def _stored(record: TensorRecord) -> Document:
    names = ("step", "stage", "session", "layer", "kind", "dtype", "shape", "digest", "file")
    fields = msgspec.to_builtins(record)
    return {"name": record.name, **{name: fields.get(name) for name in names}, "key": record.key}


def _stored_grid(against: Against) -> list[Grid]:
    first, several = against.divergence.first, against.divergence.several_sessions
    if first is None or not against.stored:
        return []
    mismatch = first.step, first.session, first.name.partition("#")[0]
    rows = [
        (
            str(record.step),
            *([str(record.session)] if several else []),
            literal(record.key),
            str(record.kind),
            "the mismatch"
            if (record.step, record.session, record.name) == mismatch
            else "an input",
            record.dtype,
            " x ".join(map(str, record.shape)) or "scalar",
        )
        for record in against.stored
    ]
    columns = (">step", *([">session"] if several else []), "boundary", "kind", "what")
    return [
        shortened(
            f"{count(len(rows), 'tensor')} stored: the first mismatch and its captured inputs",
            (*columns, "dtype", "shape"),
            rows,
        )
    ]


def _advice(against: Against) -> list[str]:
    """Say how to get what the answer lacks."""
    first = against.divergence.first
    if first is None:
        return []
    lines = []
    if not against.in_baseline:
        lines.append(
            "The baseline has no tensor there, so that there are no numbers. Run it again as it"
            " was run, with --against this bundle: it stops there, and stores its side."
        )
    if first.kind is PointKind.METADATA:
        lines.append(
            "Where slots may differ, leave them out, and the first store or value that differs"
            " is stored: --points 'L*,after_layer_*,logits'."
        )
    return lines


def _waited(manifest: Manifest) -> list[str]:
    if manifest.backend.device == "cpu":
        return []
    return [
        "Each tensor was copied from the device when it was captured, and the device was waited"
        " for: that can hide a race. A run with --store digest waits once a step."
    ]


def _ended_early(against: Against) -> list[str]:
    """Say that there was nothing more to compare with."""
    if against.divergence.first is not None or against.steps_run == against.steps_planned:
        return []
    rest = count(against.steps_planned - against.steps_run, "step")
    return [f"The baseline ends with step {against.steps_run - 1}: {rest} of the plan did not run."]


def _ran(manifest: Manifest, against: Against, size_bytes: int) -> str:
    name = literal(manifest.case.get("name", manifest.run_id))
    of = f" of {against.steps_planned:,}" if against.steps_run < against.steps_planned else ""
    return (
        f"Ran {name}: {count(against.steps_run, 'step')}{of},"
        f" {count(manifest.num_records, 'point')} captured, {size(size_bytes)} on disk; at most"
        f" {size(against.peak_bytes)} of tensors held at a time."
    )


def _next(found: Divergence, bundle: Path) -> list[str]:
    if found.verdict is not Verdict.DIVERGED:
        return []
    return [f"compare: swarepro diff-boundaries {literal(found.baseline)} {literal(bundle)}"]
