"""What a calibration measured."""

from pathlib import Path

from swarepro.compare.floor import Floor
from swarepro.report.jsonout import Document
from swarepro.report.model import Grid, Report, Tone
from swarepro.report.words import count, figure, listed, literal


def calibrate_report(floor: Floor, *, out: Path) -> Report:
    """Return the variants, and by point the largest spread over the layers."""
    variants = tuple(
        (
            literal(each.name),
            each.kind,
            f"{each.boundaries:,}",
            "yes" if each.tokens_differ else "no",
        )
        for each in floor.variants
    )
    by_point: dict[str, list[float]] = {}
    for entry in floor.entries:
        row = by_point.setdefault(entry.point, [0.0, 0.0])
        row[0], row[1] = max(row[0], entry.order), max(row[1], entry.precision)
    flipped = [each.name for each in floor.variants if each.tokens_differ]
    lines = (
        (f"Rounding alone chose other tokens in: {listed(flipped, most=6)}.",) if flipped else ()
    )
    return Report(
        headline=(
            f"The floor of {literal(floor.model)} in {literal(floor.dtype)} on"
            f" {literal(floor.device)}: {count(len(floor.variants), 'legal variant')} of"
            f" {literal(floor.case)}, {count(len(floor.entries), 'point')} with their layers."
        ),
        tone=Tone.PLAIN,
        grids=(
            Grid(
                title="Variants, each against the case as it is",
                columns=("variant", "changes", ">boundaries", "other tokens"),
                rows=variants,
            ),
            Grid(
                title="Largest error of a vector, over all layers",
                columns=("point", ">order", ">precision"),
                rows=tuple(
                    (point.format(layer="*"), figure(row[0]), figure(row[1]))
                    for point, row in by_point.items()
                ),
            ),
        ),
        lines=lines,
        commands=(f"swarepro diff-boundaries BASELINE TARGET --floor {literal(out)}",),
    )


def calibrate_document(floor: Floor, *, out: Path) -> Document:
    """Return what `swarepro calibrate --json` prints; the entries are in the file."""
    return {
        "floor": str(out),
        "model": floor.model,
        "dtype": floor.dtype,
        "device": floor.device,
        "case": floor.case,
        "entries": len(floor.entries),
        "variants": [
            {
                "name": each.name,
                "kind": each.kind,
                "boundaries": each.boundaries,
                "tokens_differ": each.tokens_differ,
            }
            for each in floor.variants
        ],
    }
