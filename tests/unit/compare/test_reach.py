"""What is an input of what, through boundaries that are not captured, and until when it is one."""

import pytest

from swarepro import points
from swarepro.compare.inputs import Place
from swarepro.compare.reach import Reach, Spot, order
from tests.unit.bundle.factory import batch, keep, reuse
from tests.unit.compare.batches import CHAIN, run

STEPS = (
    batch(0, (0, 0, 4)),
    batch(1, (0, 4, 6)),
    batch(2, (0, 6, 7, "decode")),
    batch(3, (1, 4, 8), actions=(keep(0), reuse(1, of=0, rows=5))),
)


def spot(point, layer=None, stage=0):
    return Spot(stage, point.name, layer)


def at(point, step, layer=None, *, stage=0, session=0):
    return Place(step=step, stage=stage, session=session, point=point.name, layer=layer)


def every(layers=(0, 1), without=()):
    """Every boundary of a single stage, but those of some points."""
    found = []
    for point in points.ALL:
        if point in (points.BOUNDARY_RECV_HIDDEN, points.BOUNDARY_SEND_HIDDEN, *without):
            continue
        in_layer = point.scope is points.Scope.LAYER
        found += [spot(point, layer) for layer in (layers if in_layer else (None,))]
    return found


@pytest.fixture
def reach(tmp_path):
    def make(captured, ends=None, *, layers=((0, 2),)):
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        manifest = run(STEPS, layers=layers).open(place).manifest
        return Reach(manifest, captured, captured if ends is None else ends)

    return make


def names(places):
    return sorted((place.step, place.session, place.name) for place in places)


def test_the_inputs_are_those_that_the_point_declares(reach):
    found = reach(every()).inputs(at(points.O_PROJ, 1, 1))
    assert names(found) == [(1, 0, "L1_attention_output")]
    found = reach(every()).inputs(at(points.INPUT_NORMED, 1, 1))
    assert names(found) == [(1, 0, "after_layer_0")]


def test_what_is_held_over_comes_from_the_step_before(reach):
    found = reach(every()).inputs(at(points.KV_SLICE_PRE_WRITE, 1, 1))
    assert names(found) == [
        (0, 0, "L1_kv_slice_post_write"),
        (1, 0, "full_slots"),
        (1, 0, "swa_slots"),
    ]
    assert names(reach(every()).inputs(at(points.INPUT_IDS, 2))) == [(1, 0, "token")]
    assert names(reach(every()).inputs(at(points.INPUT_IDS, 1))) == []


def test_a_prefix_that_is_taken_over_leads_to_the_steps_that_wrote_it(reach):
    found = reach(every()).inputs(at(points.KV_SLICE_PRE_WRITE, 3, 0, session=1))
    assert [each for each in names(found) if each[0] < 3] == [
        (0, 0, "L0_kv_slice_post_write"),
        (1, 0, "L0_kv_slice_post_write"),
        (2, 0, "L0_kv_slice_post_write"),
    ]
    slots = reach(every()).inputs(at(points.FULL_SLOTS, 3, session=1))
    assert names(slots) == [(2, 0, "full_slots")]


def test_where_an_input_is_not_captured_its_own_inputs_stand_for_it(reach):
    captured = every(without=(points.O_PROJ, points.ATTENTION_OUTPUT))
    found = reach(captured).inputs(at(points.ATTN_RESIDUAL, 1, 1))
    assert names(found) == [
        (1, 0, "L1_kv_slice_post_write"),
        (1, 0, "L1_rotary_applied"),
        (1, 0, "L1_v_normed"),
        (1, 0, "after_layer_0"),
        (1, 0, "route"),
    ]


def test_what_is_captured_and_not_compared_is_looked_behind(reach):
    ends = [each for each in every() if each.point != points.O_PROJ.name]
    found = reach(every(), ends).inputs(at(points.ATTN_RESIDUAL, 1, 1))
    assert names(found) == [
        (1, 0, "L1_attention_output"),
        (1, 0, "L1_o_proj"),
        (1, 0, "after_layer_0"),
    ]


def test_of_a_step_before_nothing_is_looked_behind(reach):
    """Else a run whose pool is not captured would need every step before."""
    boundary = [each for each in every() if points.by_name(each.point).level != "op"]
    found = reach(boundary).inputs(at(points.AFTER_LAYER, 2, 1))
    assert names(found) == [(2, 0, "after_layer_0"), (2, 0, "positions")]


def test_stages_are_followed_through_what_crosses_them(reach):
    edge = [
        spot(points.AFTER_LAYER, 0),
        spot(points.BOUNDARY_SEND_HIDDEN),
        spot(points.BOUNDARY_RECV_HIDDEN, stage=1),
        spot(points.INPUT_NORMED, 1, stage=1),
    ]
    found = reach(edge, layers=CHAIN).inputs(at(points.INPUT_NORMED, 0, 1, stage=1))
    assert names(found) == [(0, 0, "boundary_recv_hidden")]
    found = reach(edge, layers=CHAIN).inputs(at(points.BOUNDARY_RECV_HIDDEN, 0, stage=1))
    assert names(found) == [(0, 0, "boundary_send_hidden")]


@pytest.mark.parametrize(
    ("point", "layer", "last", "last_layer"),
    [
        (points.O_PROJ, 0, points.ATTN_RESIDUAL, 0),
        (points.AFTER_LAYER, 0, points.ATTN_RESIDUAL, 1),
        (points.AFTER_LAYER, 1, points.FINAL_NORM, None),
        (points.POSITIONS, None, points.ROTARY_APPLIED, 1),
        (points.MLP_GATE_UP, 1, points.MLP_OUTPUT, 1),
    ],
)
def test_a_boundary_is_needed_until_the_last_one_that_names_it(
    reach, point, layer, last, last_layer
):
    found = reach(every())
    assert found.until(spot(point, layer), later=False) == order(spot(last, last_layer))
    assert found.until(spot(point, layer), later=True) is None


def test_what_is_held_over_is_needed_in_a_later_step(reach):
    found = reach(every())
    post = spot(points.KV_SLICE_POST_WRITE, 1)
    assert found.until(post, later=True) == order(spot(points.KV_SLICE_PRE_WRITE, 1))
    assert found.until(spot(points.TOKEN), later=True) == order(spot(points.INPUT_IDS))
    assert found.until(spot(points.TOKEN), later=False) is None
    assert found.until(spot(points.LOGITS), later=True) is None


def test_what_is_not_compared_needs_nothing(reach):
    found = reach(every(), [spot(points.SWA_SLOTS)])
    assert found.until(spot(points.FULL_SLOTS), later=False) == order(spot(points.SWA_SLOTS))
    assert found.until(spot(points.O_PROJ, 0), later=False) is None


def test_where_the_logits_alone_are_compared_all_is_needed_until_them(reach):
    found = reach(every(), [spot(points.LOGITS)])
    for each in (spot(points.INPUT_IDS), spot(points.O_PROJ, 0), spot(points.FINAL_NORM)):
        assert found.until(each, later=False) == order(spot(points.LOGITS))
    assert found.until(spot(points.TOKEN), later=True) == order(spot(points.LOGITS))
