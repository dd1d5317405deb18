"""Scripts: a legal one laid out exactly, and each that cannot be done refused at its entry."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarepro import script
from swarepro.errors import CaseError
from swarepro.plan import Action, Finish, Phase, Reuse, Span, Step
from swarepro.script import plan_script
from tests.unit.scripts import KEPT, START, Entry, case, decode, prefill, reuse, rows


def lay_out(
    *script: Entry,
    prompts: tuple[tuple[int, ...], ...] = ((7,) * 8,),
    capacity: int = 32,
    page_size: int = 4,
) -> tuple[tuple[Step, ...], tuple[Action, ...]]:
    entries = case(*script, sessions=[{}] * len(prompts)).script
    return plan_script(entries, prompts, capacity=capacity, page_size=page_size)


TWO = ((7,) * 8, (7,) * 6)
"""Prompts whose tokens are the same as far as the shorter one goes."""


def refuse(*script: Entry, **how: Any) -> str:
    with pytest.raises(CaseError) as caught:
        lay_out(*script, **how)
    return caught.value.message


# What a script becomes


def test_a_script_is_laid_out_entry_by_entry() -> None:
    steps, final = lay_out(
        rows(prefill(0, 5), prefill(1, 6)),
        rows(decode(1), prefill(0, 3)),
        rows(decode(0), decode(1), times=2),
        {"finish": [1, 0], "keep": True},
        reuse(2, 0, 4),
        rows(prefill(2, 1)),
        {"reset": True},
        rows(prefill(3, 2)),
        {"finish": [3]},
        prompts=((7,) * 8, (7,) * 6, (7,) * 5, (1, 2)),
    )
    prefilled, decoded = Phase.PREFILL, Phase.DECODE
    assert steps == (
        Step(
            index=0,
            spans=(
                Span(session=0, start=0, end=5, phase=prefilled),
                Span(session=1, start=0, end=6, phase=prefilled),
            ),
        ),
        Step(
            index=1,
            spans=(
                Span(session=1, start=6, end=7, phase=decoded),
                Span(session=0, start=5, end=8, phase=prefilled),
            ),
        ),
        Step(
            index=2,
            spans=(
                Span(session=0, start=8, end=9, phase=decoded),
                Span(session=1, start=7, end=8, phase=decoded),
            ),
        ),
        Step(
            index=3,
            spans=(
                Span(session=0, start=9, end=10, phase=decoded),
                Span(session=1, start=8, end=9, phase=decoded),
            ),
        ),
        Step(
            index=4,
            spans=(Span(session=2, start=4, end=5, phase=prefilled),),
            actions=(
                Finish(session=1, keep=True),
                Finish(session=0, keep=True),
                Reuse(session=2, of=0, rows=4),
            ),
        ),
        Step(index=5, spans=(Span(session=3, start=0, end=2, phase=prefilled),), reset=True),
    )
    assert final == (Finish(session=3),)
    assert [step.phase for step in steps] == [
        Phase.PREFILL,
        Phase.MIXED,
        Phase.DECODE,
        Phase.DECODE,
        Phase.PREFILL,
        Phase.PREFILL,
    ]


def test_a_reused_prefix_may_be_finished_kept_and_reused_again() -> None:
    steps, final = lay_out(
        rows(prefill(0, 8)),
        {"finish": [0], "keep": True},
        reuse(1, 0, 4),
        rows(prefill(1, 2)),
        {"finish": [1], "keep": True},
        reuse(2, 1, 4),
        rows(prefill(2, 1)),
        prompts=(*TWO, (7,) * 5),
    )
    assert [step.actions for step in steps] == [
        (),
        (Finish(session=0, keep=True), Reuse(session=1, of=0, rows=4)),
        (Finish(session=1, keep=True), Reuse(session=2, of=1, rows=4)),
    ]
    assert final == ()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), min_size=1, max_size=12))
def test_the_spans_of_a_session_follow_one_another(moves) -> None:
    """Whatever the interleaving: chunks that tile the prompt, then a token a step."""
    left = {0: 8, 1: 5, 2: 11}
    done = dict.fromkeys(left, 0)
    script = []
    for session, size in [*moves, *((s, 9) for s in left), *((s, 9) for s in left)]:
        size = max(0, min(size, left[session] - done[session]))
        script.append(rows(prefill(session, size) if size else decode(session)))
        done[session] += size or 1
    prompts = tuple((7,) * count for count in left.values())
    steps, _ = lay_out(*script, prompts=prompts)
    assert [step.index for step in steps] == list(range(len(script)))
    for session, total in done.items():
        mine = [span for step in steps for span in step.spans if span.session == session]
        assert [span.start for span in mine] == [0, *(span.end for span in mine[:-1])]
        assert mine[-1].end == total
        assert all((span.phase is Phase.DECODE) == (span.start >= left[session]) for span in mine)


# What is refused


@pytest.mark.parametrize(
    ("script", "how", "says"),
    [
        ([{}], {}, "script[0] needs exactly one of rows, finish, reuse and reset; found none"),
        ([{"rows": []}], {}, "script[0] needs exactly one of"),
        ([START, {**rows(decode(0)), "finish": [0]}], {}, "script[1] needs exactly one of"),
        ([START, {"finish": [0], "reset": True}], {}, "found finish, reset"),
        ([{**START, **reuse(1, 0, 4), "reset": True}], {}, "found rows, reuse, reset"),
        ([{**START, "keep": True}], {}, "script[0]: keep goes with finish"),
        ([START, {"reset": True, "keep": True}], {}, "script[1]: keep goes with finish"),
        ([{**START, "times": 2}], {}, "script[0]: times goes with rows that all decode"),
        (
            [rows(prefill(0, 8)), rows(decode(0), prefill(1, 1), times=2)],
            {"prompts": TWO},
            "script[1]: times goes with rows that all decode",
        ),
        ([START, {"finish": [0], "times": 2}], {}, "script[1]: times goes with rows"),
        ([START, {"reset": True, "times": 2}], {}, "script[1]: times goes with rows"),
        ([*KEPT, {**reuse(1, 0, 4), "times": 3}], {"prompts": TWO}, "script[2]: times goes with"),
        (
            [rows({"session": 0})],
            {},
            "script[0]: session 0 needs either prefill = N or decode = true",
        ),
        ([START, rows(prefill(0, 1) | decode(0))], {}, "session 0 needs either prefill = N or"),
        (
            [rows(prefill(0, 5)), rows(decode(0))],
            {},
            "script[1]: session 0 decodes before its prompt is done: 5 of 8 rows",
        ),
        ([rows(decode(0))], {}, "decodes before its prompt is done: 0 of 8 rows"),
        (
            [rows(prefill(0, 5)), rows(prefill(0, 4))],
            {},
            "script[1]: session 0 has 3 of 8 prompt rows left; prefill asks for 4",
        ),
        ([START, rows(prefill(0, 1))], {}, "has 0 of 8 prompt rows left; prefill asks for 1"),
        (
            [rows(prefill(0, 2), prefill(1, 2), prefill(0, 2))],
            {"prompts": TWO},
            "script[0]: session 0 is twice in one step",
        ),
        ([rows(prefill(1, 2))], {}, "script[0]: the case has no session 1"),
        ([START, {"finish": [1]}], {}, "script[1]: the case has no session 1"),
        ([*KEPT, reuse(1, 0, 4)], {}, "script[2]: the case has no session 1"),
        ([START, reuse(0, 9, 4)], {}, "script[1]: the case has no session 9"),
        (
            [START, {"finish": [1]}],
            {"prompts": TWO},
            "script[1]: session 1 is new; it cannot be finished",
        ),
        (
            [START, {"finish": [0]}, {"finish": [0]}],
            {},
            "script[2]: session 0 is finished; it cannot be finished",
        ),
        ([START, {"finish": [0, 0]}], {}, "session 0 is finished; it cannot be finished"),
        ([*KEPT, {"finish": [0]}], {}, "script[2]: session 0 is kept; it cannot be finished"),
        (
            [START, {"finish": [0]}, rows(decode(0))],
            {},
            "script[2]: session 0 is finished; it cannot go on",
        ),
        ([*KEPT, rows(decode(0))], {}, "script[2]: session 0 is kept; it cannot go on"),
        (
            [START, {"reset": True}, rows(decode(0))],
            {},
            "script[2]: session 0 is finished; it cannot go on",
        ),
        (
            [*KEPT, reuse(1, 0, 6)],
            {"prompts": TWO},
            "script[2]: 6 rows are no whole number of pages of 4",
        ),
        (
            [START, reuse(1, 0, 4)],
            {"prompts": TWO},
            "script[1]: session 0 is running, not kept; nothing can be reused",
        ),
        (
            [START, {"finish": [0]}, reuse(1, 0, 4)],
            {"prompts": TWO},
            "session 0 is finished, not kept; nothing can be reused",
        ),
        ([reuse(0, 1, 4)], {"prompts": TWO}, "session 1 is new, not kept; nothing can be reused"),
        ([reuse(0, 0, 4)], {}, "session 0 is new, not kept; nothing can be reused"),
        (
            [*KEPT, reuse(1, 0, 4), reuse(2, 0, 4)],
            {"prompts": (*TWO, TWO[0])},
            "script[3]: session 0 is finished, not kept",
        ),
        (
            [START, rows(prefill(1, 1)), {"finish": [0], "keep": True}, reuse(1, 0, 4)],
            {"prompts": TWO},
            "script[3]: session 1 has begun; it cannot reuse a prefix",
        ),
        (
            [*KEPT, reuse(1, 0, 8)],
            {"prompts": ((7,) * 8, (7,) * 8)},
            "8 rows cannot be reused: session 0 computed 8, and one of session 1's 8 prompt rows"
            " at least has to be computed",
        ),
        (
            [rows(prefill(0, 3)), {"finish": [0], "keep": True}, reuse(1, 0, 4)],
            {"prompts": TWO},
            "4 rows cannot be reused: session 0 computed 3",
        ),
        (
            [*KEPT, reuse(1, 0, 4)],
            {"prompts": ((7,) * 8, (7, 7, 7, 8, 7))},
            "script[2]: the first 4 tokens of the prompts of sessions 1 and 0 are not the same",
        ),
        (
            [START, rows(decode(0), times=4), {"finish": [0], "keep": True}, reuse(1, 0, 12)],
            {"prompts": ((7,) * 8, (7,) * 20)},
            "the first 12 tokens of the prompts of sessions 1 and 0 are not the same",
        ),
        ([{"reset": True}, START], {}, "script[0]: a reset stands between two steps"),
        (
            [START, {"finish": [0]}, {"reset": True}, rows(prefill(1, 1))],
            {"prompts": TWO},
            "script[2]: a reset stands between two steps, before any finish or reuse",
        ),
        (
            [START, {"reset": True}, {"reset": True}, rows(prefill(1, 1))],
            {"prompts": TWO},
            "script[2]: a reset stands between two steps",
        ),
        ([START, {"reset": True}], {}, "the script ends with a reset that nothing follows"),
        ([START], {"prompts": TWO}, "the script never runs sessions[1]"),
        ([*KEPT, reuse(1, 0, 4)], {"prompts": TWO}, "the script never runs sessions[1]"),
        ([START], {"prompts": (TWO[0], ())}, "sessions[1]: the prompt is empty"),
        ([START], {"capacity": 7}, "script[0]: session 0 reaches 8 positions; the capacity is 7"),
        (
            [START, rows(decode(0), times=25)],
            {},
            "script[1]: session 0 reaches 33 positions; the capacity is 32",
        ),
    ],
)
def test_an_entry_that_cannot_be_done_is_refused_with_its_number(script, how, says) -> None:
    assert says in refuse(*script, **how)


def test_a_script_without_a_step_is_refused() -> None:
    with pytest.raises(CaseError, match="the script computes nothing") as caught:
        plan_script((), TWO, capacity=32, page_size=1)
    assert caught.value.hint == "add an entry with rows"


@pytest.mark.parametrize(
    ("script", "how", "hint"),
    [
        ([START, reuse(1, 0, 4)], {"prompts": TWO}, "finish it with keep = true first"),
        ([START], {"capacity": 4}, "raise the capacity or shorten the session"),
    ],
)
def test_what_to_do_about_it_is_said(script, how, hint) -> None:
    with pytest.raises(CaseError) as caught:
        lay_out(*script, **how)
    assert caught.value.hint == hint


def test_what_nearly_fails_is_done() -> None:
    """The control of the refusals: one less of everything."""
    lay_out(START, rows(decode(0), times=24))
    lay_out(*KEPT, reuse(1, 0, 4), rows(prefill(1, 1)), prompts=((7,) * 8, (7, 7, 7, 7, 8)))
    lay_out(*KEPT, reuse(1, 0, 8), rows(prefill(1, 1)), prompts=((7,) * 8, (7,) * 9))
    lay_out(START, {"reset": True}, rows(prefill(1, 6)), {"finish": [1]}, prompts=TWO)
    lay_out(rows(prefill(0, 3)), {"finish": [0]})  # a session may end in its prompt


# What is too large is refused before it is laid out


def test_times_beyond_the_capacity_are_refused_before_they_are_laid_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    laid_out: list[Span] = []
    make = script.Span

    def span(**fields: Any) -> Span:
        laid_out.append(make(**fields))
        return laid_out[-1]

    monkeypatch.setattr(script, "Span", span)
    message = refuse(START, rows(decode(0), times=1000))
    assert message == "script[1]: session 0 reaches 1008 positions; the capacity is 32"
    assert len(laid_out) == 1  # the prefill


def test_a_script_of_too_many_spans_is_refused_at_once() -> None:
    prompts = ((7,) * 8,) * 40
    start = rows(*(prefill(session, 8) for session in range(40)))
    again = rows(*(decode(session) for session in range(40)), times=2**20 - 8)
    message = refuse(start, again, prompts=prompts, capacity=2**20)
    assert (
        message == f"the script computes {40 + 40 * (2**20 - 8)} spans; a run has {2**20} at most"
    )


def test_a_session_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(CaseError, match="no session 7") as caught:
        lay_out(START, rows(decode(7)), prompts=TWO)
    assert caught.value.hint == "its sessions are 0 to 1"
