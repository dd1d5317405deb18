"""Hand-made runs of several sessions, whose numbers do not depend on what runs beside them."""

import zlib

import numpy as np

from swarepro import points
from tests.unit.bundle.factory import Run, item, stages

PROMPTS = (tuple(range(8)), tuple(range(8, 16)), tuple(range(8)))
SINGLE, CHAIN = ((0, 2),), ((0, 1), (1, 2))
_OF_STEP = (points.INPUT_IDS, points.POSITIONS, points.FULL_SLOTS, points.EMBEDDING_OUTPUT)
_OF_LAYER = (
    points.QKV_PROJECTED,
    points.V_NORMED,
    points.ROTARY_APPLIED,
    points.KV_SLICE_PRE_WRITE,
    points.KV_SLICE_POST_WRITE,
    points.ATTENTION_OUTPUT,
    points.AFTER_LAYER,
)
_SHAPES = {"T": None, "C": None, "1": None, "2": 2, "K": 1}


def rows(point, layer, session, start, end):
    """The healthy numbers of these positions."""
    inner = tuple(_SHAPES.get(dim, 3) for dim in point.dims[1:])
    made = []
    for position in range(start, end):
        seed = zlib.crc32(f"{point.name} {layer} {PROMPTS[session][:4]} {position}".encode())
        made.append(np.random.default_rng(seed).normal(size=inner))
    return np.array(made).reshape(end - start, *inner)


def run(steps, *, layers=SINGLE, change=None, without=(), **more):
    """A run of these steps.

    Args:
        steps: from `tests.unit.bundle.factory.batch`.
        layers: of each stage.
        change: called with name, step, session and the array, which it may edit.
        without: names to leave out.
        more: fields of `Run`.
    """
    made = Maker(change, without)
    for step in steps:
        for stage, (first, last) in enumerate(layers):
            for point in _OF_STEP:
                if point is not points.EMBEDDING_OUTPUT or first == 0:
                    made.add(point, step, stage)
            if first > 0:
                made.add(points.BOUNDARY_RECV_HIDDEN, step, stage)
            for layer in range(first, last):
                for point in _OF_LAYER:
                    made.add(point, step, stage, layer)
            if last < layers[-1][1]:
                made.add(points.BOUNDARY_SEND_HIDDEN, step, stage)
            else:
                made.add(points.LOGITS, step, stage)
    defaults = {"prompts": PROMPTS, "tokens": ((1,), (2,), (3,)), "stages": stages(*layers)}
    return Run(items=made.items, steps=tuple(steps), **(defaults | more))


class Maker:
    """Collects items in execution order."""

    def __init__(self, change, without):
        self.items = []
        self._change = change
        self._without = without
        self._seen = {}

    def add(self, point, step, stage, layer=None):
        """One record of ``point`` for each span of ``step``."""
        name = point.concrete(layer)
        if name in self._without:
            return
        for span in step.spans:
            start, end = span.start, span.end
            if point.dims[0] == "C":
                start = 0
            elif point.dims[0] == "1":
                start = end - 1
            array = rows(point, layer, span.session, start, end)
            if point is points.INPUT_IDS:
                array = np.array((PROMPTS[span.session] * 2)[start:end])
            elif point is points.POSITIONS:
                array = np.arange(start, end)
            elif point is points.FULL_SLOTS:
                array = np.arange(start, end) + 100 * (span.session + 1)
            elif point is points.KV_SLICE_PRE_WRITE:
                array = rows(points.KV_SLICE_POST_WRITE, layer, span.session, start, end)
                array[span.start - start :] = 0
            if self._change:
                self._change(name, step.index, span.session, array)
            dtype = "I64" if array.dtype.kind == "i" else "F32"
            occurrence = self._seen.get((step.index, name), 0)
            self._seen[step.index, name] = occurrence + 1
            at = {"step": step.index, "stage": stage, "layer": layer, "session": span.session}
            made = item(point, array, dtype=dtype, row_start=start, occurrence=occurrence, **at)
            self.items.append(made)
