"""`swarepro points`: the declared capture points."""

from swarepro.cli import options as o
from swarepro.cli.output import emit
from swarepro.errors import ExitCode
from swarepro.points import ALL
from swarepro.report.model import Grid, Report, Tone
from swarepro.report.words import MISSING


def points(as_json: o.AsJson = False) -> ExitCode:
    """List every capture point, in execution order."""
    emit(
        as_json=as_json,
        document=lambda: {
            "points": [
                {
                    "order": order,
                    "name": point.name,
                    "scope": str(point.scope),
                    "kind": str(point.kind),
                    "level": str(point.level),
                    "dims": list(point.dims),
                    "inputs": list(point.inputs),
                    "optional": point.optional,
                }
                for order, point in enumerate(ALL)
            ]
        },
        report=_report,
    )
    return ExitCode.NOTHING_FOUND


def _report() -> Report:
    rows = tuple(
        (
            str(order),
            point.name,
            str(point.kind),
            str(point.level),
            " ".join(point.dims) or MISSING,
            "\n".join(point.inputs) or MISSING,
        )
        for order, point in enumerate(ALL)
    )
    return Report(
        headline=f"{len(ALL)} capture points, in execution order.",
        tone=Tone.PLAIN,
        grids=(
            Grid(
                title="",
                columns=(">order", "name", "kind", "level", "dims", "inputs"),
                rows=rows,
            ),
        ),
        lines=(
            "Dimensions: T tokens of the step, C positions that its queries see, L layers,"
            " E hidden, H query heads, K kv heads, J both, D head_dim, Q all of q, k and v,"
            " F gate and up, V vocabulary, 2 K and V.",
            "An input that ends in @previous is the previous layer's, or the step's.",
            f"A model may lack {' or '.join(point.name for point in ALL if point.optional)}.",
        ),
    )
