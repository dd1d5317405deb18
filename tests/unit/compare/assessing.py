"""Runs of four layers, and a hand-made floor to hold them against."""

import numpy as np

from swarepro import points
from swarepro.compare.floor import FloorEntry
from tests.unit.bundle.factory import Run, item, spans, stages

ROWS = 6


def entries(*, order: float = 1e-3, precision: float = 1e-2) -> list[FloorEntry]:
    places = [(points.EMBEDDING_OUTPUT, None), (points.LOGITS, None)]
    places += [
        (p, layer) for layer in range(4) for p in (points.ATTENTION_OUTPUT, points.AFTER_LAYER)
    ]
    return [
        FloorEntry(
            point=point.name,
            layer=layer,
            order=order,
            order_l2=order / 4,
            precision=precision,
            precision_l2=precision / 4,
        )
        for point, layer in places
    ]


TIED = (3, 7, 8)
"""Ids whose logits are the largest, all of one size: what the runs here choose from."""


def run(
    change=None, *, steps=((0, ROWS),), tokens=((7, 8),), decode=(), chosen=None, **more
) -> Run:
    """A run of 4 layers; ``change(name, rows)`` edits a tensor of the whole prompt in place.

    ``chosen`` are the tokens that the rows of each step chose, where they are captured.
    """
    rng = np.random.default_rng(5)
    made: list = []
    whole: list[tuple[points.CapturePoint, int | None, np.ndarray]] = []

    def add(point, layer, shape):
        array = rng.normal(size=(ROWS, *shape)).astype(np.float32)
        if change is not None:
            change(point.concrete(layer), array)
        if point is points.LOGITS:
            array[:, TIED] = array.max(axis=1, keepdims=True)
        whole.append((point, layer, array))

    add(points.EMBEDDING_OUTPUT, None, (8,))
    for layer in range(4):
        add(points.ATTENTION_OUTPUT, layer, (2, 4))
        add(points.AFTER_LAYER, layer, (8,))
    add(points.LOGITS, None, (9,))
    for step, (start, end) in enumerate(steps):
        for point, layer, array in whole:
            first = end - 1 if point is points.LOGITS else start
            made.append(item(point, array[first:end], layer=layer, step=step, row_start=first))
        if chosen is not None:
            token = np.array([chosen[step]])
            made.append(item(points.TOKEN, token, dtype="I64", step=step, row_start=end - 1))
    return Run(
        items=made,
        steps=spans(*steps),
        stages=stages((0, 4)),
        num_layers=4,
        prompts=(tuple(range(1, 6)),),
        tokens=tokens,
        **more,
    )


def chain(*, second: float) -> Run:
    """Three stages; ``second`` is what the second one sends."""
    sent = [
        item(points.BOUNDARY_SEND_HIDDEN, np.full((2, 8), value), stage=rank, occurrence=rank)
        for rank, value in enumerate((1.0, second))
    ]
    return Run(
        items=sent,
        steps=spans((0, 2)),
        stages=stages((0, 1), (1, 2), (2, 4)),
        num_layers=4,
        prompts=((1, 2),),
        tokens=((),),
    )


def small(name: str, rows: np.ndarray) -> None:
    if name != "embedding_output":
        rows *= 1.0005


def large(name: str, rows: np.ndarray) -> None:
    small(name, rows)
    if name == "L2_attention_output":
        rows[3:, 1] += 0.5
    if name in ("after_layer_2", "after_layer_3", "logits"):
        rows[3:] += 0.2
