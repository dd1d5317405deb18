"""Writes tests/data/bundle-v2: run once for schema version 2, never again.

python -m tests.unit.bundle.make_frozen_v2 tests/data/bundle-v2
"""

import sys
from pathlib import Path

import numpy as np

from swarepro import points
from swarepro.bundle.schema import Owner, OwnerRange, StageOwnership, Violation
from tests.unit.bundle.factory import Run, batch, bf16, finish, item, keep, reuse

SHARED = Violation(
    kind="foreign-store",
    step=1,
    positions=(1,),
    slots=(2,),
    message="position 1 of session 1 stored to a slot of session 0",
    layer=0,
    group="sliding",
    owner=Owner(session=0, position=1),
    user=Owner(session=1, position=1),
    order=1,
)
STALE = Violation(
    kind="mapping-lost",
    step=0,
    positions=(),
    slots=(3,),
    message="1 slot is neither free nor owned by any position",
    group="full",
)


def frozen_run() -> Run:
    """Return the run that the frozen bundle holds: a mixed batch, then a reuse. It uses it all."""
    rows = np.arange(6, dtype=np.float32).reshape(2, 3) / 4 - 0.5

    def ids(step: int, session: int, start: int, *tokens: int, occurrence: int = 0):
        at = {"step": step, "session": session, "row_start": start, "occurrence": occurrence}
        return item(points.INPUT_IDS, np.array(tokens), dtype="I64", **at)

    return Run(
        items=[
            ids(0, 0, 0, 2, 818),
            item(points.EMBEDDING_OUTPUT, bf16(rows), dtype="BF16"),
            ids(1, 1, 0, 2, 5),
            ids(1, 0, 2, 7, occurrence=1),
            item(points.O_PROJ, rows, layer=0, step=1, session=1),
            item(points.O_PROJ, rows[:1], layer=0, step=1, row_start=2, occurrence=1),
            item(points.TOKEN, np.array([9]), dtype="I64", step=1, session=1, row_start=1),
            item(points.TOKEN, np.array([8]), dtype="I64", step=1, row_start=2, occurrence=1),
            ids(2, 2, 2, 6),
        ],
        steps=(
            batch(0, (0, 0, 2)),
            batch(1, (1, 0, 2), (0, 2, 3, "decode")),
            batch(2, (2, 2, 3), actions=(keep(0), reuse(2, of=0, rows=2))),
        ),
        prompts=((2, 818), (2, 5), (2, 818, 6)),
        tokens=((7, 8), (9,), ()),
        fill="nan",
        engine="dense",
        ownership=(
            StageOwnership(
                stage=0,
                group="full",
                capacity=9,
                free=2,
                live=5,
                evictable=1,
                reserved=1,
                positions=5,
                owners=(
                    OwnerRange(session=1, start=0, slots=(4, 5)),
                    OwnerRange(session=2, start=0, slots=(1, 2, 6)),
                ),
                violations=(STALE,),
            ),
            StageOwnership(
                stage=0,
                group="sliding",
                capacity=4,
                free=0,
                live=4,
                positions=4,
                owners=(OwnerRange(session=1, start=0, slots=(1, 2)),),
                violations=(SHARED,),
            ),
        ),
        final_actions=(finish(1), keep(2)),
        shadow=True,
    )


if __name__ == "__main__":
    frozen_run().write(Path(sys.argv[1]))
