"""Which span of a session goes on from which, and when two runs computed the same."""

import msgspec
import pytest

from swarepro.compare.names import ranks, shown_name
from swarepro.compare.steps import previous_spans, same_spans, same_steps, several_sessions
from tests.unit.bundle.factory import batch, finish, keep, reuse
from tests.unit.report.made import manifest, record

FIRST = batch(0, (0, 0, 4), (1, 0, 2))


def of(*steps, **changes):
    return manifest(**({"steps": steps, "prompts": ((1,),) * 4} | changes))


def test_a_session_goes_on_from_its_own_last_step():
    steps = FIRST, batch(1, (1, 2, 3)), batch(2, (0, 4, 5), (1, 3, 4))
    assert previous_spans(of(*steps)) == {(1, 1): ((0, 1),), (2, 0): ((0, 0),), (2, 1): ((1, 1),)}


def test_a_reuse_goes_on_from_the_last_step_and_from_those_that_wrote_the_rows():
    steps = (
        FIRST,
        batch(1, (0, 4, 6)),
        batch(2, (0, 6, 7)),
        batch(3, (2, 5, 6), actions=(keep(0), reuse(2, of=0, rows=5))),
        batch(4, (2, 6, 7)),
    )
    found = previous_spans(of(*steps))
    assert found[3, 2] == ((2, 0), (0, 0), (1, 0))
    assert found[4, 2] == ((3, 2),)
    shorter = (*steps[:3], batch(3, (2, 4, 5), actions=(keep(0), reuse(2, of=0, rows=4))))
    assert previous_spans(of(*shorter))[3, 2] == ((2, 0), (0, 0))


def test_a_reuse_of_a_reuse_knows_who_wrote_the_rows():
    steps = (
        FIRST,
        batch(1, (2, 4, 6), actions=(keep(0), reuse(2, of=0, rows=4))),
        batch(2, (3, 5, 6), actions=(keep(2), reuse(3, of=2, rows=5))),
    )
    assert previous_spans(of(*steps))[2, 3] == ((1, 2), (0, 0))
    early = (*steps[:2], batch(2, (3, 2, 6), actions=(keep(2), reuse(3, of=2, rows=2))))
    assert previous_spans(of(*early))[2, 3] == ((1, 2), (0, 0))


def test_one_kept_session_is_reused_twice():
    actions = keep(0), reuse(2, of=0, rows=4), reuse(3, of=0, rows=2)
    found = previous_spans(of(FIRST, batch(1, (2, 4, 5), (3, 2, 5), actions=actions)))
    assert found == {(1, 2): ((0, 0),), (1, 3): ((0, 0),)}


@pytest.mark.parametrize(
    "step",
    [
        batch(1, (0, 0, 4), reset=True),
        batch(1, (2, 0, 4), actions=(finish(0),)),
        batch(1, (2, 0, 4), actions=(keep(0),)),
    ],
)
def test_what_begins_on_empty_slots_goes_on_from_nothing(step):
    assert previous_spans(of(FIRST, step)) == {}


def test_control_without_the_reset_it_goes_on():
    assert previous_spans(of(FIRST, batch(1, (0, 4, 5)))) == {(1, 0): ((0, 0),)}


def test_same_steps_whatever_the_order_of_spans_and_where_the_phase_is_said():
    swapped = msgspec.structs.replace(FIRST, spans=FIRST.spans[::-1])
    said = msgspec.structs.replace(
        FIRST,
        phase="mixed",
        spans=tuple(msgspec.structs.replace(span, phase="prefill") for span in FIRST.spans),
    )
    for other in (swapped, said):
        assert same_steps(of(FIRST), of(other))


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (batch(0, (0, 0, 4), (1, 0, 3)), False),
        (batch(0, (0, 0, 4), (1, 0, 2, "decode")), False),
        (batch(0, (0, 0, 4), (2, 0, 2)), True),  # session 1 is in one run alone
        (batch(0, (0, 0, 4)), True),
        (batch(0, (0, 0, 4), (1, 0, 2), reset=True), True),
    ],
)
def test_other_steps(other, same):
    assert not same_steps(of(FIRST), of(other))
    assert same_spans(of(FIRST), of(other)) is same


def test_another_number_of_steps():
    assert not same_steps(of(FIRST), of(FIRST, batch(1, (0, 4, 5))))
    assert not same_spans(of(FIRST), of(FIRST, batch(1, (0, 4, 5))))


def test_several_sessions():
    one = of(prompts=((1,),))
    assert not several_sessions(one, one)
    assert several_sessions(one, of())
    assert several_sessions(of(), one)


def test_ranks_count_within_step_name_and_session():
    places = ((0, "x", 0), (0, "x", 1), (0, "x", 1), (0, "y", 1), (0, "x", 0), (1, "x", 0))
    records = [
        record(index, step=step, name=name, session=session)
        for index, (step, name, session) in enumerate(places)
    ]
    assert ranks(records) == (0, 0, 1, 0, 1, 0)
    assert [shown_name(records[0], rank) for rank in (0, 2)] == ["x", "x#2"]
