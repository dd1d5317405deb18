import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarepro import points
from swarepro.compare.determinism import classify, repeats_for, upper_bound
from swarepro.errors import IncomparableError
from tests.unit.bundle.factory import item


def repeat(**values):
    """Records of one repeat: for each name how it came out (an int)."""
    known = {
        "pool": (points.KV_SLICE_POST_WRITE, 0),
        "out": (points.ATTENTION_OUTPUT, 0),
        "send": (points.BOUNDARY_SEND_HIDDEN, None),
        "norm": (points.FINAL_NORM, None),
        "logits": (points.LOGITS, None),
        "token": (points.TOKEN, None),
    }
    records = []
    for name, value in values.items():
        short, _, step = name.partition("_")
        point, layer = known[short]
        shape = tuple(1 for _ in point.dims)
        records.append(item(point, np.full(shape, value), layer=layer, step=int(step or 0))[0])
    return records


def classified(*repeats, tokens=None):
    return classify(repeats, tokens or [(1,)] * len(repeats))


def test_six_equal_repeats():
    found = classified(*[repeat(pool=1, out=2, logits=3)] * 6)
    assert found.verdict == "DETERMINISTIC"
    assert [item.classes for item in found.points] == [(6,)] * 3
    assert found.earliest_varying is found.first_value_varying is None
    assert (found.modal_repeat, found.deviating, found.outputs_vary) == (0, (), ())
    assert found.rate_upper_bound == pytest.approx(1 - 0.05 ** (1 / 6))


def test_classes_of_three_two_and_one():
    found = classified(*(repeat(pool=value, out=0) for value in (5, 6, 5, 7, 6, 5)))
    assert found.verdict == "NONDETERMINISTIC"
    pool = found.points[0]
    assert (pool.classes, pool.distinct, pool.deviating) == ((3, 2, 1), 3, (1, 3, 4))
    assert pool.modal == repeat(pool=5)[0].digest
    assert found.earliest_varying == pool
    assert found.first_value_varying is None
    assert found.rate_upper_bound is None
    assert (found.modal_repeat, found.deviating) == (0, (1, 3, 4))


def test_the_mode_of_a_tie_is_the_earliest():
    pool = classified(*(repeat(pool=value) for value in (1, 2, 2, 1))).points[0]
    assert pool.modal == repeat(pool=1)[0].digest
    assert pool.deviating == (1, 2)


def test_the_modal_repeat_deviates_least():
    found = classified(
        repeat(pool=1, out=9, logits=9),
        repeat(pool=2, out=0, logits=0),
        repeat(pool=1, out=0, logits=0),
    )
    assert found.modal_repeat == 2
    assert found.deviating == (0, 1)


def test_state_first_value_later():
    found = classified(
        repeat(pool=1, out=1, pool_1=1, out_1=1), repeat(pool=2, out=1, pool_1=2, out_1=2)
    )
    assert (found.earliest_varying.name, found.earliest_varying.step) == (
        "L0_kv_slice_post_write",
        0,
    )
    assert (found.first_value_varying.name, found.first_value_varying.step) == (
        "L0_attention_output",
        1,
    )


def test_outputs_are_the_last_logits_or_send_of_a_step():
    base = {"send": 0, "logits_1": 0, "token_1": 0, "logits_2": 0}
    found = classified(repeat(**base), repeat(**(base | {"logits_1": 1, "token_1": 1})))
    assert found.outputs_vary == (1,)
    found = classified(repeat(**base), repeat(**(base | {"send": 1})))
    assert found.outputs_vary == (0,)
    found = classified(repeat(**base), repeat(**(base | {"token_1": 1})))
    assert found.outputs_vary == ()


def test_a_send_inside_the_chain_is_not_the_output():
    def of(send):
        sent, logits = repeat(send=send, logits=0)
        return [sent, msgspec.structs.replace(logits, stage=1)]

    assert classified(of(0), of(1)).outputs_vary == ()


def test_tokens_alone_make_it_nondeterministic():
    found = classified(*[repeat(logits=1)] * 3, tokens=[(1, 2), (1, 3), (1, 2)])
    assert found.verdict == "NONDETERMINISTIC"
    assert found.deviating == (1,)
    assert found.rate_upper_bound is None
    assert found.modal_repeat == 0


def test_a_boundary_that_some_repeats_lack():
    found = classified(repeat(pool=1, out=1), repeat(pool=1))
    assert [(one.step, one.name) for one in found.only_some] == [(0, "L0_attention_output")]
    assert found.rate_upper_bound is None
    assert classified(*[repeat(pool=1, out=1)] * 2).only_some == ()


def test_equal_bytes_in_another_shape_are_another_class():
    one = item(points.LOGITS, np.zeros((1, 4)))[0]
    other = item(points.LOGITS, np.zeros((2, 2)))[0]
    assert one.digest == other.digest
    assert classified([one], [other]).points[0].classes == (1, 1)


def test_points_come_in_execution_order_and_not_in_order_of_names():
    found = classified(repeat(token_1=0, logits_1=0, out=0, pool=0))
    assert [(one.step, one.name) for one in found.points] == [
        (0, "L0_kv_slice_post_write"),
        (0, "L0_attention_output"),
        (1, "logits"),
        (1, "token"),
    ]


def test_nothing_captured_says_nothing():
    with pytest.raises(IncomparableError, match="nothing was captured"):
        classified([], [])


@pytest.mark.parametrize(("repeats", "tokens"), [([], []), ([repeat(pool=1)], [])])
def test_calls_that_make_no_sense(repeats, tokens):
    with pytest.raises(ValueError, match="repeats with"):
        classify(repeats, tokens)


@pytest.mark.parametrize(
    ("repeats", "bound"), [(1, 0.95), (6, 0.393), (59, 0.0495), (299, 0.00997)]
)
def test_known_bounds(repeats, bound):
    assert upper_bound(repeats) == pytest.approx(bound, rel=1e-2)


@given(st.integers(1, 5000))
def test_the_bound_is_what_it_says(repeats):
    bound = upper_bound(repeats)
    assert (1 - bound) ** repeats == pytest.approx(0.05)
    assert repeats_for(bound) == repeats


@given(st.floats(1e-5, 0.999))
def test_repeats_for_is_the_smallest(bound):
    needed = repeats_for(bound)
    assert upper_bound(needed) <= bound
    assert needed == 1 or upper_bound(needed - 1) > bound


@pytest.mark.parametrize("bound", [0.0, 1.0, -1.0, 2.0])
def test_rates_outside_zero_and_one_are_refused(bound):
    with pytest.raises(ValueError, match="between 0 and 1"):
        repeats_for(bound)
    with pytest.raises(ValueError, match="no bound"):
        upper_bound(0)
