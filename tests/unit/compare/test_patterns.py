"""What rows that are off have in common, on hand-made bundles."""

from pathlib import Path

import numpy as np
import pytest

from swarepro import points
from swarepro.compare.divergence import compare_bundles
from swarepro.compare.patterns import window_of
from tests.unit.bundle.factory import Run, batch, item, spans

ROWS = 12


def rows(*shape: int) -> np.ndarray:
    return np.random.default_rng(2).normal(size=(ROWS, *shape)).astype(np.float32)


def said(tmp_path: Path, change, *, point=points.O_PROJ, shape=(4,), steps=None, page=1):
    steps = steps or spans((0, ROWS))
    target = rows(*shape)
    change(target)
    sides = []
    for name, array in (("b", rows(*shape)), ("t", target)):
        items = [
            item(
                point,
                array[span.start : span.end],
                layer=0,
                step=step.index,
                row_start=span.start,
            )
            for step in steps
            for span in step.spans
        ]
        run = Run(items=items, steps=steps, prompts=((1,) * ROWS,))
        fields = run.manifest_fields
        run.manifest_fields = lambda fields=fields: {**fields(), "case": {"page_size": page}}
        sides.append(run.open(tmp_path / name))
    return compare_bundles(*sides).patterns


def test_swapped_rows(tmp_path: Path) -> None:
    def change(x: np.ndarray) -> None:
        x[[3, 7]] = x[[7, 3]]

    assert said(tmp_path, change) == ("rows 3 and 7 are swapped",)


def test_a_row_that_is_another_positions(tmp_path: Path) -> None:
    def change(x: np.ndarray) -> None:
        x[2], x[5] = x[9], x[9]

    assert said(tmp_path, change) == (
        "row 2 holds what position 9 has in the baseline, and 1 more likewise",
    )


def test_zeros_and_what_is_not_finite(tmp_path: Path) -> None:
    def change(x: np.ndarray) -> None:
        x[4] = 0
        x[6:8] = np.nan

    assert said(tmp_path, change) == (
        "2 rows (6 to 7) are not finite in any value, as if no key had been seen",
        "row 4 is zero",
    )


def test_one_head(tmp_path: Path) -> None:
    def change(x: np.ndarray) -> None:
        x[5, 2] += 1

    found = said(tmp_path, change, point=points.Q_NORMED, shape=(4, 3))
    assert found == ("1 of 4 heads are off: 2",)


def test_a_suffix_that_begins_with_a_chunk_and_a_page(tmp_path: Path) -> None:
    def change(x: np.ndarray) -> None:
        x[8:] += 1

    assert said(tmp_path, change, steps=spans((0, 8), (8, ROWS)), page=4) == (
        "all rows from position 8 on are off, and none before it",
        "a chunk begins at position 8",
        "a page of 4 begins at position 8",
        "all lie in page 2 of the session",
    )


def test_a_row_in_the_middle_has_no_pattern(tmp_path: Path) -> None:
    def change(x: np.ndarray) -> None:
        x[5] += 1

    assert said(tmp_path, change, page=4) == ()


@pytest.mark.parametrize("dtype", ["digest", "tensor"])
def test_another_sessions_row(tmp_path: Path, dtype: str) -> None:
    """Found in the stored rows; of digests alone nothing is said."""
    mine, theirs = rows(4), rows(4) + 1
    wrong = mine.copy()
    wrong[3] = theirs[5]
    step = batch(0, (0, 0, ROWS), (1, 0, ROWS))
    sides = []
    for name, array in (("b", mine), ("t", wrong)):
        items = [
            item(points.O_PROJ, array, layer=0, store=dtype == "tensor"),
            item(points.O_PROJ, theirs, layer=0, session=1, occurrence=1, store=dtype == "tensor"),
        ]
        run = Run(items=items, steps=(step,), prompts=((1,), (1,)), tokens=((), ()))
        sides.append(run.open(tmp_path / name))
    wanted = ("row 3 holds what position 5 of session 1 has in the baseline",)
    assert compare_bundles(*sides).patterns == (wanted if dtype == "tensor" else ())


def test_the_window_is_told_from_what_the_slices_show(tmp_path: Path) -> None:
    """The first query of a step at 10 sees 7 to 10; a full layer's slice begins at 0."""
    steps = spans((0, 10), (10, ROWS))
    items = []
    for layer, first in ((0, 7), (1, 0)):
        for step, start in ((0, 0), (1, first)):
            end = steps[step].spans[0].end
            array = np.zeros((end - start, 2, 1, 2), dtype=np.float32)
            point = points.KV_SLICE_POST_WRITE
            items.append(item(point, array, layer=layer, step=step, row_start=start))
    items.sort(key=lambda made: made[0].step)
    bundle = Run(items=items, steps=steps, prompts=((1,) * ROWS,)).open(tmp_path / "b")
    assert window_of(bundle, 0, 0) == 4
    assert window_of(bundle, 1, 0) is None


def attention_run(*, off: float, lacking=(), held: tuple[int, ...] = (2, 1, 4)) -> Run:
    """Queries of 2 heads over 1 kv head, a step a row; row 5 may be off."""
    rng = np.random.default_rng(3)
    q_and_k = rng.normal(size=(ROWS, 3, 4)).astype(np.float32)
    slices = rng.normal(size=(ROWS, *held)).astype(np.float32)
    outs = rng.normal(size=(ROWS, 2, 4)).astype(np.float32)
    outs[5] += off
    steps = spans(*((row, row + 1) for row in range(ROWS)))
    items = [
        item(point, array[row : row + 1], layer=0, step=row, row_start=row)
        for row in range(ROWS)
        if row not in lacking
        for point, array in (
            (points.ROTARY_APPLIED, q_and_k),
            (points.KV_SLICE_POST_WRITE, slices),
            (points.ATTENTION_OUTPUT, outs),
        )
    ]
    return Run(items=items, steps=steps, prompts=((1,) * ROWS,))


@pytest.mark.parametrize(
    "changes",
    [
        {"held": (1, 1, 4)},
        {"held": (2, 3, 4)},
        {"held": (2, 1, 2)},
        {"held": (2, 0, 4)},
        {"lacking": (3, 4)},
    ],
)
def test_inputs_that_do_not_fit_together_tell_no_keys(
    tmp_path: Path, changes: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shapes of no attention call, or steps that were not captured: it is asked about nothing."""
    asked: list[object] = []

    class Solver:
        fits = False

        def __init__(self, heads: object) -> None:
            asked.append(heads)

    monkeypatch.setattr("swarepro.compare.patterns.KeySolver", Solver)
    for name, more, number in (("odd", changes, 0), ("whole", {}, 1)):
        sides = [
            attention_run(**more, off=off).open(tmp_path / f"{name}{off}") for off in (0.0, 1.0)
        ]
        assert compare_bundles(*sides).first.name == "L0_attention_output"
        assert len(asked) == number
