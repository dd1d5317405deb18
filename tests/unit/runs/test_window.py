"""What a run against a baseline holds meanwhile, counted in bytes, and what it keeps in the end."""

import pytest
from msgspec import structs

from swarepro.backend import torch_dtype
from swarepro.case import PromptSpec, SessionSpec
from swarepro.compare.types import Verdict
from swarepro.runs import window as window_module
from swarepro.runtime.shapes import expected_tensors
from tests.unit.runs.baselines import (
    BATCHES,
    ONE,
    against,
    baseline_of,
    flipped,
    place,
    prepared,
)


@pytest.fixture(scope="module")
def batches():
    return prepared(BATCHES)


@pytest.fixture(scope="module")
def stored(batches, tmp_path_factory):
    return baseline_of(batches, tmp_path_factory.mktemp("against") / "baseline")


def test_the_earliest_is_named_though_another_session_of_the_batch_shows_one_before(
    batches, stored, tmp_path
):
    """A layer computes session by session what is ordered point by point."""
    step, late, early = 2, ("L3_o_proj", 0), ("L3_attention_output", 1)
    chosen = {
        (record.name, record.session): record.index
        for record in stored.records
        if record.step == step and (record.name, record.session) in (late, early)
    }
    assert chosen[early] < chosen[late]
    changed = flipped(stored, tmp_path / "flipped", *chosen.values())
    found = against(batches, changed, tmp_path / "run")
    first = found.divergence.first
    assert (first.name, first.session) == early
    assert {each.session for each in found.stored} == {1}
    assert [b.session for b in found.divergence.boundaries] == [1, 0]


def test_the_pool_that_a_reused_prefix_comes_from_is_stored_with_it(batches, stored, tmp_path):
    (record,) = (
        each
        for each in stored.records
        if (each.step, each.session, each.name) == (3, 2, "L0_kv_slice_pre_write")
    )
    found = against(batches, flipped(stored, tmp_path / "a", record.index), tmp_path / "run")
    assert [place(each) for each in found.stored] == [
        (0, 0, "L0_kv_slice_post_write"),
        (2, 0, "L0_kv_slice_post_write"),
        (3, 2, "full_slots"),
        (3, 2, "swa_slots"),
        (3, 2, "L0_kv_slice_pre_write"),
    ]


def test_a_step_of_more_layers_holds_no_more(tmp_path):
    single = structs.replace(ONE, sessions=(SessionSpec(prompt=PromptSpec(random=40)),))
    peaks = []
    for layers in (4, 8):
        model = f"synthetic:gemma4-tiny?layers={layers}"
        ready = prepared(structs.replace(single, model=model))
        stored = baseline_of(ready, tmp_path / f"base-{layers}")
        found = against(ready, stored, tmp_path / f"run-{layers}")
        assert found.divergence.verdict is Verdict.IDENTICAL
        peaks.append(found.peak_bytes)
    # The routes of a step are an entry for each layer.
    assert peaks[1] - peaks[0] == 4 * 8


def test_it_is_less_than_the_layers_and_slices_that_the_window_promises(tmp_path):
    ready = prepared(structs.replace(ONE, model="synthetic:gemma4-tiny"))
    stored = baseline_of(ready, tmp_path / "base")
    found = against(ready, stored, tmp_path / "run")
    item = torch_dtype(ready.case.dtype).itemsize
    tensors = list(expected_tensors(ready.plan, ready.model.config, itemsize=item))
    bounds, whole = [], []
    for step in range(len(ready.plan.steps)):
        of_step = [each for each in tensors if each.step == step]
        whole.append(sum(each.num_bytes for each in of_step))
        bounds.append(_promised(of_step) + _slices(tensors, step - 1, step))
    assert 0 < found.peak_bytes <= max(bounds) < max(whole) / 2


def test_it_does_not_grow_with_the_steps_but_for_the_slices(tmp_path):
    peaks = {}
    for steps in (2, 8):
        session = SessionSpec(prompt=PromptSpec(random=4, seed=3), decode=steps)
        ready = prepared(structs.replace(ONE, sessions=(session,)))
        stored = baseline_of(ready, tmp_path / f"base-{steps}")
        peaks[steps] = against(ready, stored, tmp_path / f"run-{steps}").peak_bytes
        item = torch_dtype(ready.case.dtype).itemsize
        tensors = list(expected_tensors(ready.plan, ready.model.config, itemsize=item))
        last = len(ready.plan.steps) - 1
        peaks[steps] -= _slices(tensors, last - 1, last)
    assert peaks[8] <= peaks[2]


def test_control_without_anything_compared_on_the_way_a_step_is_held(tmp_path):
    single = structs.replace(ONE, sessions=(SessionSpec(prompt=PromptSpec(random=40)),))
    ready = prepared(single)
    thin = baseline_of(prepared(single, points=("logits",)), tmp_path / "thin")
    found = against(ready, thin, tmp_path / "run")
    item = torch_dtype(ready.case.dtype).itemsize
    sizes = {
        each.point.name.format(layer=each.layer): each.num_bytes
        for each in expected_tensors(ready.plan, ready.model.config, itemsize=item)
    }
    assert found.divergence.compared == 1
    # The token comes after the logits, and nothing is computed from a prefix's length.
    unneeded = sum(sizes[name] for name in ("logits", "token", "prefix_len"))
    assert found.peak_bytes == sum(sizes.values()) - unneeded


def test_after_the_first_mismatch_nothing_more_is_copied(batches, stored, tmp_path, monkeypatch):
    copied = []
    see = window_module.Window.see

    def counting(self, captured, digest, copy):
        def counted():
            copied.append(captured.step)
            return copy()

        see(self, captured, digest, counted)

    monkeypatch.setattr(window_module.Window, "see", counting)
    changed = flipped(stored, tmp_path / "flipped", 10)
    assert changed.records[10].step == 0
    against(batches, changed, tmp_path / "run", go_on=True)
    assert set(copied) == {0}


def _promised(of_step):
    """Bytes of two neighbouring layers, and of all that is in no layer."""
    layers = sorted({each.layer for each in of_step if each.layer is not None})
    by_layer = [sum(each.num_bytes for each in of_step if each.layer == layer) for layer in layers]
    pairs = [sum(by_layer[start : start + 2]) for start in range(len(by_layer) - 1)]
    return max(pairs) + sum(each.num_bytes for each in of_step if each.layer is None)


def _slices(tensors, *steps):
    """Bytes of the slices after the stores of these steps."""
    return sum(
        each.num_bytes
        for each in tensors
        if each.step in steps and each.point.name == "L{layer}_kv_slice_post_write"
    )
