"""What rows that are off have in common, on hand-made bundles."""

from pathlib import Path

import numpy as np
import pytest

from swarepro import points
from swarepro.bundle.read import Bundle
from swarepro.compare.divergence import compare_bundles
from swarepro.compare.patterns import Off, patterns, window_of
from tests.unit.bundle.factory import Run, batch, item, spans

ROWS = 12


def rows(*shape: int) -> np.ndarray:
    return np.random.default_rng(2).normal(size=(ROWS, *shape)).astype(np.float32)


def said(tmp_path: Path, change, *, point=points.O_PROJ, shape=(4,), steps=None, page=1, images=()):
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
        run.manifest_fields = lambda fields=fields: {
            **fields(),
            "case": {"page_size": page, "sessions": [{"images": images}]},
        }
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


def test_an_image_that_is_seen_causally(tmp_path: Path) -> None:
    def change(x: np.ndarray) -> None:
        x[3:6] += 1

    (sentence,) = said(tmp_path / "1", change, images=[[1, 3], [3, 7]])
    assert sentence == (
        "these are the tokens of the image at positions 3 to 6 but its last, as where none sees"
        " those behind it"
    )
    for number, images in enumerate(([[3, 6]], [[3, 8]], [[2, 7]], [])):
        assert said(tmp_path / f"other-{number}", change, images=images) == ()

    def with_a_gap(x: np.ndarray) -> None:
        x[[3, 5]] += 1

    assert said(tmp_path / "gap", with_a_gap, images=[[3, 7]]) == ()


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


@pytest.mark.parametrize(
    ("off", "steps"),
    [
        (slice(0, ROWS), ((0, ROWS),)),
        (slice(0, 8), ((0, 8), (8, ROWS))),
        (slice(3, 7), ((0, ROWS),)),
    ],
)
def test_rows_that_begin_at_0_or_end_before_the_last_are_no_suffix(
    tmp_path: Path, off: slice, steps: tuple[tuple[int, int], ...]
) -> None:
    """At 0 every prompt has a chunk and a page that begin."""

    def change(x: np.ndarray) -> None:
        x[off] += 1

    assert said(tmp_path, change, steps=spans(*steps), page=4) == ()


def test_rows_are_counted_through_all_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swarepro.compare.patterns.WINDOW_BYTES", 2 * rows(4)[0].nbytes)
    test_swapped_rows(tmp_path)


def test_of_too_large_a_boundary_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(x: np.ndarray) -> None:
        x[[3, 7]] = x[[7, 3]]

    for most, wanted in ((rows(4).nbytes, 1), (rows(4).nbytes - 1, 0)):
        monkeypatch.setattr("swarepro.compare.patterns._MOST_BYTES", most)
        assert len(said(tmp_path / str(most), change)) == wanted


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


def two_sessions(folder: Path, mine: np.ndarray, theirs: np.ndarray) -> Bundle:
    items = [
        item(points.O_PROJ, mine, layer=0),
        item(points.O_PROJ, theirs, layer=0, session=1, occurrence=1),
    ]
    step = batch(0, (0, 0, ROWS), (1, 0, ROWS))
    return Run(items=items, steps=(step,), prompts=((1,), (1,)), tokens=((), ())).open(folder)


def off(session: int, *positions: int) -> Off:
    return Off(
        point=points.O_PROJ.name,
        layer=0,
        session=session,
        positions=positions,
        heads=(),
        num_heads=0,
    )


def test_rows_of_two_sessions_are_not_swapped(tmp_path: Path) -> None:
    """Row 3 is row 7 of another session; that row 7 is row 3 of its own does not make a pair."""
    mine, theirs = rows(4), rows(4) + 1
    wrong = mine.copy()
    wrong[3], wrong[7] = theirs[7], mine[3]
    sides = two_sessions(tmp_path / "b", mine, theirs), two_sessions(tmp_path / "t", wrong, theirs)
    assert patterns(*sides, off(0, 3, 7)) == (
        "row 3 holds what position 7 of session 1 has in the baseline, and 1 more likewise",
    )


def test_a_sessions_own_rows_are_named_before_those_of_others(tmp_path: Path) -> None:
    mine, theirs = rows(4), rows(4) + 1
    mine[5] = theirs[6]
    wrong = theirs.copy()
    wrong[3] = theirs[6]
    sides = two_sessions(tmp_path / "b", mine, theirs), two_sessions(tmp_path / "t", mine, wrong)
    assert patterns(*sides, off(1, 3)) == ("row 3 holds what position 6 has in the baseline",)


def test_a_row_that_is_right_where_it_was_written_is_no_other_row(tmp_path: Path) -> None:
    """A row that is read otherwise later counts as off, and holds its own position's values."""
    sides = [two_sessions(tmp_path / name, rows(4), rows(4) + 1) for name in "bt"]
    assert patterns(*sides, off(0, 3)) == ()


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


def attention_run(
    *, off: float, lacking=(), held: tuple[int, ...] = (2, 1, 4), num_heads: int = 2
) -> Run:
    """Queries of 2 heads over 1 kv head, a step a row; row 5 may be off."""
    rng = np.random.default_rng(3)
    kv_heads = 2 if num_heads == 3 else 1
    q_and_k = rng.normal(size=(ROWS, num_heads + kv_heads, 4)).astype(np.float32)
    slices = rng.normal(size=(ROWS, *held)).astype(np.float32)
    outs = rng.normal(size=(ROWS, num_heads, 4)).astype(np.float32)
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
        {"held": (2, 2, 4), "num_heads": 3},
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


def keys_run(folder: Path, keys) -> Bundle:
    """A step of queries of 2 heads over 1 kv head; ``keys(p)`` says which one at p sees."""
    rng = np.random.default_rng(6)
    q, k, v = (rng.normal(size=(30, heads, 8)) for heads in (2, 1, 1))
    outs = np.empty((30, 2, 8))
    for p in range(30):
        first, last = keys(p)
        weights = np.exp(0.35 * np.einsum("hd,cd->ch", q[p], k[first : last + 1, 0]))
        outs[p] = np.einsum("ch,cd->hd", weights / weights.sum(axis=0), v[first : last + 1, 0])
    items = [
        item(points.ROTARY_APPLIED, np.concatenate([q, k], axis=1), layer=0),
        item(points.KV_SLICE_POST_WRITE, np.stack([k, v], axis=1), layer=0),
        item(points.ATTENTION_OUTPUT, outs, layer=0),
    ]
    return Run(items=items, steps=spans((0, 30)), prompts=((1,) * 30,)).open(folder)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (lambda p: (max(0, p - 8), p), "8 saw keys 0 to 8 instead of 1 to 8, 1 too many (22 of 22"),
        (lambda p: (max(0, p - 6), p), "7 saw keys 1 to 7 instead of 0 to 7, 1 too few (23 of 23"),
        (lambda p: (max(0, p - 8), p - (p > 7)), "8 saw keys 0 to 7 instead of 1 to 8 (22 of 22"),
    ],
)
def test_which_keys_the_queries_saw(tmp_path: Path, seen, words: str) -> None:
    """A window of 8 keys, and one of more, of fewer, and shifted."""
    sides = keys_run(tmp_path / "b", lambda p: (max(0, p - 7), p)), keys_run(tmp_path / "t", seen)
    assert compare_bundles(*sides).patterns[-1] == (
        f"query {words} queries that were tried saw other keys)"
    )


def test_of_many_keys_fewer_queries_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = (
        keys_run(tmp_path / "b", lambda p: (max(0, p - 7), p)),
        keys_run(tmp_path / "t", lambda p: (max(0, p - 8), p)),
    )
    for values, number in ((10 * 30 * 2 * 8, 8), (0, 4)):
        monkeypatch.setattr("swarepro.compare.patterns._MOST_VALUES", values)
        assert f"({number} of {number} queries" in compare_bundles(*sides).patterns[-1]


@pytest.mark.parametrize(("number", "is_said"), [(4, False), (12, True)])
def test_keys_of_a_few_queries_are_no_rule(tmp_path: Path, number: int, is_said: bool) -> None:
    """All 22 rows are off, and most of them saw the right keys."""
    own, other = (
        keys_run(tmp_path / "b", lambda p: (max(0, p - 7), p)),
        keys_run(tmp_path / "t", lambda p: (max(0, p - 7 - (p >= 30 - number)), p)),
    )
    found = patterns(
        own,
        other,
        Off(
            point=points.ATTENTION_OUTPUT.name,
            layer=0,
            session=0,
            positions=range(8, 30),
            heads=(0, 1),
            num_heads=2,
        ),
    )
    assert any("saw keys" in each for each in found) is is_said
