"""The run that tests/data/bundle-v1 holds. Its writer is gone: version 1 is only read."""

import numpy as np

from swarepro import points
from tests.unit.bundle.factory import Run, bf16, item, spans


def frozen_run() -> Run:
    """Return the run that the frozen bundle holds."""
    rows = np.arange(6, dtype=np.float32).reshape(2, 3) / 4 - 0.5
    return Run(
        items=[
            item(points.INPUT_IDS, np.array([2, 818]), dtype="I64"),
            item(points.EMBEDDING_OUTPUT, bf16(rows), dtype="BF16"),
            item(points.O_PROJ, rows, layer=0),
            item(points.AFTER_LAYER, rows * 2, layer=1, store=False),
            item(points.TOKEN, np.array([7]), dtype="I64", row_start=1),
        ],
        steps=spans((0, 2)),
        prompts=((2, 818),),
    )
