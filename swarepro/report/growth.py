"""How an error grows over the layers, as a small chart and a table."""

import math
from collections.abc import Sequence

from swarepro.compare.assessment import LayerGrowth
from swarepro.report.model import Grid
from swarepro.report.words import MISSING, figure

_HEIGHT = 10
_STEPS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 80.0)
"""Decades between two lines of the chart."""
_WIDTH = 72


def growth_grids(growth: Sequence[LayerGrowth]) -> tuple[Grid, ...]:
    """Return the chart of the residual stream, where it differs at all in two layers or more."""
    if len([layer for layer in growth if layer.relative_l2 > 0]) < 2:
        return ()
    return (_chart(growth), _table(growth))


def _chart(growth: Sequence[LayerGrowth]) -> Grid:
    per_column = -(-len(growth) // _WIDTH)
    columns = [growth[at : at + per_column] for at in range(0, len(growth), per_column)]
    marks = (
        ("-", [max((x.floor_l2 or 0.0) for x in column) for column in columns]),
        ("+", [max((x.added or 0.0) for x in column) for column in columns]),
        ("o", [max(x.relative_l2 for x in column) for column in columns]),
    )
    seen = [math.log10(value) for _, values in marks for value in values if value > 0]
    step = next(size for size in _STEPS if (max(seen) - min(seen)) / size < _HEIGHT - 1)
    low = math.floor(min(seen) / step)
    lines = []
    for level in range(math.floor(max(seen) / step), low - 1, -1):
        cells = [" "] * len(columns)
        for mark, values in marks:
            for at, value in enumerate(values):
                if value > 0 and math.floor(math.log10(value) / step) == level:
                    cells[at] = mark
        lines.append((f"{10 ** (level * step):.1e}", "".join(cells)))
    layers = f"layers {growth[0].layer}-{growth[-1].layer}"
    if per_column > 1:
        layers += f", {per_column} a column"
    return Grid(
        title="Growth of the error (o relative L2 of the residual stream, + of what the layer"
        " added, - floor)",
        columns=(">from", layers),
        rows=tuple(lines),
    )


def _table(growth: Sequence[LayerGrowth], most: int = 12) -> Grid:
    """Return the layers that added most to the error, and the first and the last."""
    ranked = sorted(growth, key=lambda layer: -(layer.added or 0.0))[: most - 2]
    chosen = sorted({layer.layer for layer in (growth[0], growth[-1], *ranked)})
    rows = tuple(
        (
            str(layer.layer),
            figure(layer.relative_l2),
            MISSING if layer.added is None else figure(layer.added),
            MISSING if layer.cosine is None else f"{layer.cosine:.6f}",
            MISSING if layer.floor_l2 is None else figure(layer.floor_l2),
        )
        for layer in growth
        if layer.layer in chosen
    )
    rest = len(growth) - len(rows)
    return Grid(
        title="",
        columns=(">layer", ">rel. L2", ">added", ">cosine", ">floor"),
        rows=rows,
        note=f"the layers that added most; {rest} more with --json" if rest > 0 else None,
    )
