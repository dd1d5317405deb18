"""Sources and what inherits from them, along declared inputs, across layers, stages and steps."""

import msgspec
import numpy as np
import pytest

from swarepro import points
from swarepro.compare.divergence import compare_bundles
from swarepro.compare.inputs import InputGraph, Place
from swarepro.compare.types import Tolerance
from tests.unit.bundle.factory import Run, item, spans, stages

ROWS = ((0, 4), (4, 5), (5, 6))


def decode_steps():
    first, *others = spans(*ROWS)
    return (first, *(msgspec.structs.replace(step, phase="decode") for step in others))


def pair_of(tmp_path, captured, changed, **more):
    """Open two runs: ``captured`` (point, layer, step) hold one number each, 1 where changed."""
    bundles = []
    for name in "ab":
        items = []
        for point, layer, step in captured:
            value = float(name == "b" and (point.concrete(layer), step) in changed)
            shape = tuple(1 for _ in point.dims)
            items.append(
                item(
                    point,
                    np.full(shape, value),
                    layer=layer,
                    step=step,
                    row_start=ROWS[step][0] if point.dims else None,
                )
            )
        defaults = {"steps": decode_steps(), "num_layers": 3, "stages": stages((0, 3))}
        bundles.append(Run(items=items, **(defaults | more)).open(tmp_path / name))
    return bundles


def origins(tmp_path, captured, changed, **more):
    found = compare_bundles(*pair_of(tmp_path, captured, set(changed), **more))
    return {(b.name, b.step): b.origin for b in found.boundaries}


LAYER = [point for point in points.ALL if point.scope is points.Scope.LAYER]


def op_level(steps=(0, 1), layers=(0, 1, 2)):
    captured = []
    for step in steps:
        captured += [
            (points.INPUT_IDS, None, step),
            (points.POSITIONS, None, step),
            (points.FULL_SLOTS, None, step),
            (points.SWA_SLOTS, None, step),
            (points.EMBEDDING_OUTPUT, None, step),
        ]
        captured += [(point, layer, step) for layer in layers for point in LAYER]
        captured += [(point, None, step) for point in (points.FINAL_NORM, points.LOGITS)]
        captured.append((points.TOKEN, None, step))
    return captured


def test_everything_after_a_source_inherits(tmp_path):
    changed = [("L1_o_proj", 0), ("L1_attn_residual", 0), ("after_layer_1", 0), ("logits", 0)]
    assert origins(tmp_path, op_level(), changed) == {
        ("L1_o_proj", 0): "source",
        ("L1_attn_residual", 0): "inherited",
        ("after_layer_1", 0): "inherited",
        ("logits", 0): "source",  # final_norm was captured, and it is equal
    }


def test_the_residual_is_an_input(tmp_path):
    changed = [("after_layer_0", 0), ("L1_attn_residual", 0), ("L1_input_normed", 0)]
    found = origins(tmp_path, op_level(), changed)
    assert list(found.values()) == ["source", "inherited", "inherited"]


def test_the_first_layer_takes_the_embedding(tmp_path):
    changed = [("embedding_output", 0), ("L0_input_normed", 0)]
    assert list(origins(tmp_path, op_level(), changed).values()) == ["source", "inherited"]


def test_the_defect_a_store_that_races_and_its_first_consumer(tmp_path):
    """The pool goes bad in step 0; step 1 reads it. Pre-write of step 1 is no source."""
    changed = [
        ("L0_kv_slice_post_write", 0),
        ("L0_kv_slice_pre_write", 1),
        ("L0_kv_slice_post_write", 1),
        ("L0_attention_output", 1),
        ("L0_o_proj", 1),
        ("L1_kv_slice_pre_write", 1),
    ]
    assert origins(tmp_path, op_level(), changed) == {
        ("L0_kv_slice_post_write", 0): "source",
        ("L0_kv_slice_pre_write", 1): "inherited",
        ("L0_kv_slice_post_write", 1): "inherited",
        ("L0_attention_output", 1): "inherited",
        ("L0_o_proj", 1): "inherited",
        ("L1_kv_slice_pre_write", 1): "source",  # another layer's pool
    }


def test_state_does_not_flow_into_another_session(tmp_path):
    first, second, third = decode_steps()
    other = msgspec.structs.replace(
        second, spans=(msgspec.structs.replace(second.spans[0], session=1),), reset=True
    )
    captured = [(points.KV_SLICE_POST_WRITE, 0, 0), (points.KV_SLICE_PRE_WRITE, 0, 1)]
    changed = [("L0_kv_slice_post_write", 0), ("L0_kv_slice_pre_write", 1)]
    flows = origins(tmp_path / "1", captured, changed)
    assert list(flows.values()) == ["source", "inherited"]
    stays = origins(tmp_path / "2", captured, changed, steps=(first, other, third))
    assert list(stays.values()) == ["source", "source"]


def test_slots_and_tokens_carry_over_to_the_next_step(tmp_path):
    changed = [("swa_slots", 0), ("token", 0), ("input_ids", 1), ("swa_slots", 1)]
    assert origins(tmp_path, op_level(), changed) == {
        ("swa_slots", 0): "source",
        ("token", 0): "source",
        ("input_ids", 1): "inherited",
        ("swa_slots", 1): "inherited",
    }


def test_a_prompts_ids_do_not_come_from_a_token(tmp_path):
    captured = [(points.TOKEN, None, 0), (points.INPUT_IDS, None, 1)]
    changed = [("token", 0), ("input_ids", 1)]
    found = origins(tmp_path, captured, changed, steps=spans(*ROWS))
    assert list(found.values()) == ["source", "source"]


def test_points_that_were_not_captured_are_walked_through(tmp_path):
    captured = [(points.EMBEDDING_OUTPUT, None, 0), (points.LOGITS, None, 0)]
    changed = [("embedding_output", 0), ("logits", 0)]
    assert list(origins(tmp_path / "1", captured, changed).values()) == ["source", "inherited"]
    assert origins(tmp_path / "2", captured, [("logits", 0)]) == {("logits", 0): "source"}


def test_at_boundary_level_a_layer_inherits_from_its_input_in_an_earlier_step(tmp_path):
    """Through the pool, although no pool was captured."""
    captured = [(points.AFTER_LAYER, layer, step) for step in (0, 1) for layer in (0, 1)]
    found = origins(tmp_path, captured, [("after_layer_0", 0), ("after_layer_1", 1)])
    assert found == {("after_layer_0", 0): "source", ("after_layer_1", 1): "inherited"}


def test_nothing_captured_before_it_makes_a_source(tmp_path):
    assert origins(tmp_path, [(points.LOGITS, None, 1)], [("logits", 1)]) == {
        ("logits", 1): "source"
    }


def test_a_captured_input_that_is_equal_ends_the_walk(tmp_path):
    captured = [
        (points.EMBEDDING_OUTPUT, None, 0),
        (points.AFTER_LAYER, 0, 0),
        (points.AFTER_LAYER, 1, 0),
    ]
    changed = [("embedding_output", 0), ("after_layer_1", 0)]
    assert list(origins(tmp_path, captured, changed).values()) == ["source", "source"]


def test_a_long_run_with_little_captured_needs_no_recursion(tmp_path):
    steps = spans(*((step, step + 1) for step in range(3000)))
    manifest = pair_of(tmp_path, [(points.LOGITS, None, 0)], set())[0].manifest
    manifest = msgspec.structs.replace(manifest, steps=steps)
    graph = InputGraph(manifest, lambda place: True if place.step == 0 else None)
    last = Place(step=2999, stage=0, point="logits", layer=None)
    assert graph.inherits(last)
    graph = InputGraph(manifest, lambda place: None)
    assert not graph.inherits(last)


@pytest.mark.parametrize("point", points.ALL, ids=lambda point: point.name)
def test_every_declared_input_resolves_to_an_earlier_boundary(tmp_path, point):
    """No cycles and no dangling names, in the middle of a chain of stages."""
    manifest = pair_of(
        tmp_path, [(points.LOGITS, None, 0)], set(), stages=stages((0, 1), (1, 2), (2, 3))
    )[0].manifest
    graph = InputGraph(manifest, lambda place: None)
    layer = 1 if point.scope is points.Scope.LAYER else None
    place = Place(step=1, stage=1, point=point.name, layer=layer)

    def key(at):
        return points.exec_key(
            points.by_name(at.point), step=at.step, stage=at.stage, layer=at.layer, occurrence=0
        )

    parents = list(graph.parents(place))
    assert len(parents) >= len(point.inputs)
    assert all(key(parent) < key(place) for parent in parents)


def test_within_tolerance_counts_as_equal_input(tmp_path):
    captured = [(points.AFTER_LAYER, 0, 0), (points.AFTER_LAYER, 1, 0)]
    bundles = pair_of(tmp_path, captured, {("after_layer_0", 0), ("after_layer_1", 0)})
    found = compare_bundles(*bundles, tolerance=Tolerance(atol=0.5))
    assert [b.origin for b in found.boundaries] == ["source", "inherited"]
    found = compare_bundles(*bundles, tolerance=Tolerance(atol=2))
    assert [b.origin for b in found.boundaries] == [None, None]
