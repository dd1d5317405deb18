"""What a layer added to an error, against numpy."""

from pathlib import Path

import numpy as np
import pytest

from swarepro import points
from swarepro.compare.align import align_positions
from swarepro.compare.assessment import LayerGrowth
from swarepro.compare.growth import measure_growth, residual_streams
from tests.unit.bundle.factory import Run, item, spans, stages

RNG = np.random.default_rng(4)
STREAMS = {layer: RNG.normal(size=(6, 8)).astype(np.float32) for layer in range(-1, 3)}
OTHER = {
    layer: rows + np.float32(0.1) * RNG.normal(size=(6, 8)).astype(np.float32)
    for layer, rows in STREAMS.items()
}
STEPS = ((0, 4), (4, 6))


def run(streams, *, lacking=(), embedding: str = "F32", steps=STEPS) -> Run:
    items = []
    for step, (start, end) in enumerate(steps):
        for layer, rows in streams.items():
            if (layer, step) in lacking:
                continue
            point = points.EMBEDDING_OUTPUT if layer < 0 else points.AFTER_LAYER
            own = embedding if layer < 0 else "F32"
            more = {"layer": None if layer < 0 else layer, "step": step, "row_start": start}
            items.append(item(point, rows[start:end], dtype=own, **more))
    return Run(
        items=items,
        steps=spans(*steps),
        stages=stages((0, 3)),
        num_layers=3,
        prompts=((1,) * 6,),
    )


@pytest.fixture
def growth(tmp_path: Path):
    def between(one: Run, other: Run, floors=None) -> dict[int, LayerGrowth]:
        pair = one.open(tmp_path / "one"), other.open(tmp_path / "other")
        joined = [each.overlaps for each in align_positions(*pair).joined]
        found = measure_growth(*pair, residual_streams(joined), floors or {})
        return {each.layer: each for each in found}

    return between


def relative(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.linalg.norm(other - one) / np.linalg.norm(one))


@pytest.mark.parametrize("steps", [STEPS, ((0, 1), (1, 6))])
def test_every_layer_with_what_it_added(growth, steps) -> None:
    found = growth(run(STREAMS), run(OTHER, steps=steps), {1: 0.25})
    whole = {layer: rows.astype(np.float64) for layer, rows in STREAMS.items()}
    apart = {layer: rows.astype(np.float64) for layer, rows in OTHER.items()}
    assert sorted(found) == [0, 1, 2]
    for layer, each in found.items():
        b, t = whole[layer], apart[layer]
        assert each.relative_l2 == pytest.approx(relative(b, t))
        cosine = (b * t).sum() / (np.linalg.norm(b) * np.linalg.norm(t))
        assert each.cosine == pytest.approx(float(cosine))
        assert each.added == pytest.approx(relative(b - whole[layer - 1], t - apart[layer - 1]))
        assert each.floor_l2 == (0.25 if layer == 1 else None)


def test_nothing_is_said_of_what_a_layer_added_where_rows_of_what_entered_lack(growth) -> None:
    """Not of a part of its rows: both numbers of a layer are over the same rows."""
    found = growth(run(STREAMS, lacking={(1, 1)}), run(OTHER, lacking={(1, 1)}))
    assert [found[layer].added is None for layer in (0, 1, 2)] == [False, False, True]
    assert found[2].relative_l2 == pytest.approx(relative(STREAMS[2], OTHER[2]), rel=1e-5)


def test_streams_of_two_dtypes_and_more_than_a_window(growth, monkeypatch) -> None:
    """Another engine may keep the embedding in a wider type than its layers."""
    monkeypatch.setattr("swarepro.compare.windows.WINDOW_BYTES", 64)
    sides = run(STREAMS, embedding="F64"), run(OTHER, embedding="F64")
    found = growth(*sides)
    wanted = relative(STREAMS[0] - STREAMS[-1], OTHER[0] - OTHER[-1])
    assert found[0].added == pytest.approx(wanted, rel=1e-5)


def test_streams_of_two_widths_have_no_difference(growth) -> None:
    """Nothing in a dump holds an embedding to the width of the layers."""
    narrow = {**STREAMS, -1: STREAMS[-1][:, :4]}, {**OTHER, -1: OTHER[-1][:, :4]}
    found = growth(*map(run, narrow))
    assert [found[layer].added is None for layer in (0, 1, 2)] == [True, False, False]
