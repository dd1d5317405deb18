"""Sources and what inherits from them, along declared inputs, across layers, stages and steps."""

import dataclasses

import msgspec
import numpy as np
import pytest

from swarepro import points
from swarepro.bundle.read import open_bundle
from swarepro.bundle.schema import StageOwnership
from swarepro.compare.divergence import compare_bundles
from swarepro.compare.inputs import InputGraph, Place
from swarepro.compare.origin import origin_of
from swarepro.compare.types import Tolerance
from swarepro.points import PointKind
from tests.unit.bundle.factory import Run, item, spans, stages

ROWS = ((0, 4), (4, 5), (5, 6))


def decode_steps():
    first, *others = spans(*ROWS)
    return (first, *(msgspec.structs.replace(step, phase="decode") for step in others))


def pair_of(tmp_path, captured, changed, **more):
    """Open two runs: ``captured`` (point, layer, step) hold one number each, 1 where changed."""
    bundles = []
    steps = more.get("steps", decode_steps())
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
                    session=steps[step].spans[0].session,
                    row_start=ROWS[step][0] if point.dims else None,
                )
            )
        defaults = {"steps": steps, "num_layers": 3, "stages": stages((0, 3))}
        bundles.append(Run(items=items, **(defaults | more)).open(tmp_path / name))
    return bundles


def origins(tmp_path, captured, changed, **more):
    found = compare_bundles(*pair_of(tmp_path, captured, set(changed), **more))
    return {(b.name, b.step): b.origin for b in found.boundaries}


def sliding(stage):
    """The ownership of a stage that has sliding layers."""
    return StageOwnership(
        stage=stage, capacity=1, free=1, live=0, positions=0, owners=(), violations=()
    )


TAIL = (points.FINAL_NORM, points.LOGITS, points.TOKEN)
LAYER = [point for point in points.ALL if point.scope is points.Scope.LAYER]


def op_level(steps=(0, 1), layers=(0, 1, 2)):
    captured = []
    for step in steps:
        captured += [
            (points.INPUT_IDS, None, step),
            (points.POSITIONS, None, step),
            (points.FULL_SLOTS, None, step),
            (points.SWA_SLOTS, None, step),
            (points.ROUTE, None, step),
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
    changed = [("L0_kv_slice_post_write", 0), ("L0_kv_slice_pre_write", 1)]
    flows = origins(tmp_path / "1", op_level(), changed)
    assert list(flows.values()) == ["source", "inherited"]
    prompts = ((1, 2, 3, 4), (5,))
    steps = first, other, third
    stays = origins(tmp_path / "2", op_level(), changed, steps=steps, prompts=prompts)
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
    captured = [(points.LOGITS, None, 0), (points.TOKEN, None, 0), (points.INPUT_IDS, None, 1)]
    changed = [("token", 0), ("input_ids", 1)]
    found = origins(tmp_path, captured, changed, steps=spans(*ROWS))
    assert list(found.values()) == ["source", "source"]


def test_points_that_were_not_captured_are_walked_through(tmp_path):
    captured = [
        (points.INPUT_IDS, None, 0),
        (points.EMBEDDING_OUTPUT, None, 0),
        (points.LOGITS, None, 0),
    ]
    changed = [("embedding_output", 0), ("logits", 0)]
    assert list(origins(tmp_path / "1", captured, changed).values()) == ["source", "inherited"]
    assert origins(tmp_path / "2", captured, [("logits", 0)]) == {("logits", 0): "unknown"}


def test_at_boundary_level_a_layer_inherits_from_its_input_in_an_earlier_step(tmp_path):
    """Through the pool, although no pool was captured."""
    captured = [(points.AFTER_LAYER, layer, step) for step in (0, 1) for layer in (0, 1)]
    found = origins(tmp_path, captured, [("after_layer_0", 0), ("after_layer_1", 1)])
    assert found == {("after_layer_0", 0): "unknown", ("after_layer_1", 1): "inherited"}


@pytest.mark.parametrize("captured", ["logits alone", "boundary level"])
def test_inputs_that_were_not_captured_make_no_source(tmp_path, captured):
    """Patched against unpatched, and nothing but equal boundaries before the first bad value."""
    level = [entry for entry in op_level() if entry[0].level is points.Level.BOUNDARY]
    logits = [(points.LOGITS, None, 0), (points.LOGITS, None, 1)]
    changed = [("after_layer_0", 1)] if captured == "boundary level" else [("logits", 1)]
    bundles = pair_of(tmp_path, level if captured == "boundary level" else logits, set(changed))
    found = compare_bundles(*bundles)
    assert (found.first.name, found.first.step) == changed[0]
    assert found.first.origin == "unknown"
    assert (found.exact, found.exact_value) == (False, False)


def test_control_all_inputs_captured_make_a_source(tmp_path):
    found = compare_bundles(*pair_of(tmp_path, op_level(), {("after_layer_0", 1)}))
    assert (found.first.origin, found.exact, found.exact_value) == ("source", True, True)


@pytest.mark.parametrize(
    "point", [point for point in points.ALL if point.inputs], ids=lambda point: point.name
)
def test_every_input_counts(tmp_path, point):
    """A boundary is a source with all of its inputs judged equal, and with none left out."""
    manifest = pair_of(
        tmp_path, [(points.LOGITS, None, 0)], set(), stages=stages((0, 1), (1, 2), (2, 3))
    )[0].manifest
    owned = tuple(sliding(stage) for stage in range(3))
    manifest = msgspec.structs.replace(manifest, ownership=owned)
    stage = {points.EMBEDDING_OUTPUT: 0}.get(point, 2 if point in TAIL else 1)
    layer = 1 if point.scope is points.Scope.LAYER else None
    place = Place(step=1, stage=stage, session=0, point=point.name, layer=layer)

    def origin(left_out):
        graph = InputGraph(manifest, lambda place: None if place == left_out else False)
        return origin_of(graph.inputs(place))

    assert origin(None) == "source"
    parents = list(InputGraph(manifest, lambda place: None).parents(place))
    assert len(parents) >= len(point.inputs)
    assert [origin(parent) for parent in parents] == ["unknown"] * len(parents)


def test_an_input_that_could_not_be_judged_counts_as_not_captured(tmp_path):
    bundles = pair_of(tmp_path, op_level(), {("L1_o_proj", 0), ("L1_attn_residual", 0)})
    found = compare_bundles(*bundles, tolerance=Tolerance(atol=0.5))
    assert [b.origin for b in found.boundaries] == ["source", "inherited"]
    records = [
        msgspec.structs.replace(r, file=None) if r.name == "L1_o_proj" else r
        for r in bundles[1].records
    ]
    without = dataclasses.replace(bundles[1], records=tuple(records))
    found = compare_bundles(bundles[0], without, tolerance=Tolerance(atol=0.5))
    assert [(b.name, b.verdict, b.origin) for b in found.boundaries] == [
        ("L1_o_proj", "INCOMPARABLE", None),
        ("L1_attn_residual", "DIVERGED", "unknown"),
    ]
    assert not found.exact


def test_what_a_stage_does_not_have_is_not_missing(tmp_path):
    """Stage 1 of 2, without sliding layers: no ids, no embedding, no SWA slots."""
    manifest = pair_of(tmp_path, [(points.LOGITS, None, 0)], set(), stages=stages((0, 1), (1, 3)))[
        0
    ].manifest
    full = msgspec.structs.replace(sliding(1), group="full")
    manifest = msgspec.structs.replace(manifest, ownership=(sliding(0), full))

    def unseen(stage, point, layer=None, captured=()):
        graph = InputGraph(manifest, lambda place: False if place.name in captured else None)
        return graph.inputs(
            Place(step=0, stage=stage, session=0, point=point.name, layer=layer)
        ).unseen

    kv, state, metadata = points.KV_SLICE_PRE_WRITE, PointKind.STATE, PointKind.METADATA
    assert unseen(1, kv, 1, captured=("full_slots",)) == frozenset()
    assert unseen(0, kv, 0, captured=("full_slots",)) == {metadata}  # its swa_slots
    assert unseen(0, kv, 0, captured=("full_slots", "swa_slots")) == frozenset()
    sent = ("boundary_send_hidden",)
    assert unseen(1, points.BOUNDARY_RECV_HIDDEN, captured=sent) == frozenset()
    assert unseen(1, points.INPUT_NORMED, 1, captured=("boundary_recv_hidden",)) == frozenset()
    assert unseen(0, points.INPUT_NORMED, 0, captured=("embedding_output",)) == frozenset()
    assert unseen(0, points.BOUNDARY_RECV_HIDDEN) == frozenset()
    for stage in (0, 1):
        for point in (points.INPUT_IDS, points.POSITIONS, points.FULL_SLOTS, points.ROUTE):
            assert unseen(stage, point) == frozenset()
    assert state in unseen(1, points.ATTENTION_OUTPUT, 1)


def test_a_stage_alone_received_what_it_was_given(tmp_path):
    lone = (msgspec.structs.replace(stages((1, 3))[0], role="last"),)
    captured = [(points.BOUNDARY_RECV_HIDDEN, None, 0), (points.INPUT_NORMED, 1, 0)]
    changed = [("boundary_recv_hidden", 0), ("L1_input_normed", 0)]
    found = origins(tmp_path, captured, changed, stages=lone)
    assert list(found.values()) == ["source", "inherited"]


def test_routes_that_differ_by_intent_are_no_unknown_input(tmp_path):
    """Eager against Triton: the attention is where they part."""
    captured = [
        (points.ROUTE, None, 0),
        (points.V_NORMED, 0, 0),
        (points.ROTARY_APPLIED, 0, 0),
        (points.KV_SLICE_POST_WRITE, 0, 0),
        (points.ATTENTION_OUTPUT, 0, 0),
    ]
    changed = {("route", 0), ("L0_attention_output", 0)}
    pair_of(tmp_path, captured, changed)
    bundles = [open_bundle(tmp_path / name) for name in "ab"]
    routed = dataclasses.replace(
        bundles[1],
        manifest=msgspec.structs.replace(
            bundles[1].manifest,
            backend=msgspec.structs.replace(bundles[1].manifest.backend, route="triton"),
        ),
    )
    found = compare_bundles(bundles[0], routed, tolerance=Tolerance(atol=0.5))
    assert (found.first.name, found.first.origin, found.exact) == (
        "L0_attention_output",
        "source",
        True,
    )
    assert found.differences == ("route (eager against triton)",)
    found = compare_bundles(*bundles)
    assert (found.first.name, found.first.origin) == ("route", "source")


def test_between_engines_the_pool_still_carries_a_divergence_on(tmp_path):
    """No slots and nothing before a store are compared; what the last step stored is inherited."""
    changed = [("L0_kv_slice_post_write", 0), ("L0_kv_slice_post_write", 1)]
    bundles = pair_of(tmp_path, op_level(), set(changed))
    backend = msgspec.structs.replace(bundles[1].manifest.backend, engine="dense")
    manifest = msgspec.structs.replace(bundles[1].manifest, backend=backend)
    other = dataclasses.replace(bundles[1], manifest=manifest)
    found = compare_bundles(bundles[0], other, tolerance=Tolerance(atol=0.5))
    assert "L{layer}_kv_slice_pre_write" in found.skipped
    assert [(b.step, b.origin) for b in found.boundaries] == [(0, "source"), (1, "inherited")]
    assert found.exact


LACKING = {point for point in points.ALL if point.optional}


@pytest.mark.parametrize("told", ["everything", "no such point", "another layer"])
@pytest.mark.parametrize("has", ["neither", "baseline", "target"])
def test_rotary_is_a_source_where_the_model_has_no_q_and_k_norms(tmp_path, told, has):
    """Told to capture them, neither run has any: what rotary takes is the projection."""
    captured = [entry for entry in op_level(steps=(0,)) if entry[0] not in LACKING]
    changed = {("L1_rotary_applied", 0)}
    pair_of(tmp_path, captured, changed)
    pair_of(tmp_path / "full", op_level(steps=(0,)), changed)
    globs = {
        "everything": ("*",),
        "no such point": ("*_projected", "*_applied", "positions"),
        "another layer": ("L9_*",),
    }[told]
    bundles = []
    for name, side in (("a", "baseline"), ("b", "target")):
        bundle = open_bundle((tmp_path / "full" if side == has else tmp_path) / name)
        capture = msgspec.structs.replace(bundle.manifest.capture, points=globs)
        manifest = msgspec.structs.replace(bundle.manifest, capture=capture)
        bundles.append(dataclasses.replace(bundle, manifest=manifest))
    found = compare_bundles(*bundles)
    is_source = told == "everything" and has == "neither"
    assert found.first.name == "L1_rotary_applied"
    assert (found.first.origin, found.exact) == (
        ("source", True) if is_source else ("unknown", False)
    )


def test_what_lies_behind_a_point_that_the_model_lacks_still_counts(tmp_path):
    captured = [entry for entry in op_level(steps=(0,)) if entry[0] not in LACKING]
    changed = [("L1_qkv_projected", 0), ("L1_rotary_applied", 0)]
    found = origins(tmp_path, captured, changed)
    assert found == {("L1_qkv_projected", 0): "source", ("L1_rotary_applied", 0): "inherited"}


def test_a_captured_input_that_is_equal_ends_the_walk(tmp_path):
    captured = [
        (points.INPUT_IDS, None, 0),
        (points.EMBEDDING_OUTPUT, None, 0),
        (points.AFTER_LAYER, 0, 0),
        (points.INPUT_NORMED, 1, 0),
    ]
    changed = [("embedding_output", 0), ("L1_input_normed", 0)]
    assert list(origins(tmp_path, captured, changed).values()) == ["source", "source"]


def test_a_long_run_with_little_captured_needs_no_recursion(tmp_path):
    steps = spans(*((step, step + 1) for step in range(3000)))
    manifest = pair_of(tmp_path, [(points.LOGITS, None, 0)], set())[0].manifest
    manifest = msgspec.structs.replace(manifest, steps=steps)
    graph = InputGraph(manifest, lambda place: True if place.step == 0 else None)
    last = Place(step=2999, stage=0, session=0, point="logits", layer=None)
    assert graph.inputs(last).differ
    graph = InputGraph(manifest, lambda place: None)
    assert not graph.inputs(last).differ
    assert graph.inputs(last).unseen == frozenset(PointKind)


@pytest.mark.parametrize("point", points.ALL, ids=lambda point: point.name)
def test_every_declared_input_resolves_to_an_earlier_boundary(tmp_path, point):
    """No cycles and no dangling names, in the middle of a chain of stages."""
    manifest = pair_of(
        tmp_path, [(points.LOGITS, None, 0)], set(), stages=stages((0, 1), (1, 2), (2, 3))
    )[0].manifest
    graph = InputGraph(manifest, lambda place: None)
    layer = 1 if point.scope is points.Scope.LAYER else None
    place = Place(step=1, stage=1, session=0, point=point.name, layer=layer)

    def key(at):
        return points.exec_key(
            points.by_name(at.point), step=at.step, stage=at.stage, layer=at.layer, occurrence=0
        )

    parents = list(graph.parents(place))
    assert len(parents) >= len(point.inputs)
    assert all(key(parent) < key(place) for parent in parents)


def test_within_tolerance_counts_as_equal_input(tmp_path):
    captured = [(points.AFTER_LAYER, 0, 0), (points.INPUT_NORMED, 1, 0)]
    bundles = pair_of(tmp_path, captured, {("after_layer_0", 0), ("L1_input_normed", 0)})
    found = compare_bundles(*bundles, tolerance=Tolerance(atol=0.5))
    assert [b.origin for b in found.boundaries] == ["unknown", "inherited"]
    found = compare_bundles(*bundles, tolerance=Tolerance(atol=2))
    assert [b.origin for b in found.boundaries] == [None, None]
