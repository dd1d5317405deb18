"""The verdict on a treatment, from hand-made trials."""

import numpy as np
import pytest

from swarepro import points
from swarepro.compare.arms import changed_before, counterbalanced, judge_arms, records_of_step
from swarepro.compare.determinism import classify
from tests.unit.bundle.factory import item


def arm(values: str, states: str = "aa"):
    """Return two trials whose value and state boundaries came out like this, a letter a trial."""
    trials = [
        [
            item(point, np.full((1,) * len(point.dims), ord(letter)), layer=0)[0]
            for point, letter in (
                (points.KV_SLICE_POST_WRITE, state),
                (points.ATTENTION_OUTPUT, value),
            )
        ]
        for value, state in zip(values, states, strict=True)
    ]
    return classify(trials, [(), ()])


@pytest.mark.parametrize(
    ("control", "treatment", "verdict"),
    [
        ("ab", "aa", "STABILISES"),
        ("ab", "cc", "STABILISES"),
        ("ab", "ab", "REJECTED"),
        ("aa", "ab", "DESTABILISES"),
        ("aa", "bb", "CHANGES_RESULT"),
        ("aa", "aa", "NO_EFFECT"),
    ],
)
def test_the_verdict_is_on_values(control, treatment, verdict):
    assert judge_arms(arm(control), arm(treatment)) == verdict


def test_state_that_harms_no_value_is_not_judged():
    assert judge_arms(arm("aa", "ab"), arm("aa", "cd")) == "NO_EFFECT"
    assert judge_arms(arm("aa", "aa"), arm("aa", "bb")) == "NO_EFFECT"


def step_of(step: int, ids: str, logits: str = "a"):
    """Return the records of one step whose inputs and outputs came out like this."""
    return [
        item(point, np.full((1,) * len(point.dims), ord(letter)), step=step)[0]
        for point, letter in ((points.INPUT_IDS, ids), (points.LOGITS, logits))
    ]


@pytest.mark.parametrize(
    ("treatment", "outputs", "changed"),
    [
        ([*step_of(0, "a"), *step_of(1, "b", "x")], True, None),
        ([*step_of(0, "a", "x"), *step_of(1, "b")], True, "logits of stage 0 of step 0"),
        ([*step_of(0, "a", "x"), *step_of(1, "b")], False, None),
        ([*step_of(0, "a"), *step_of(1, "x")], True, "input_ids of stage 0 of step 1"),
        ([*step_of(0, "a"), *step_of(1, "x")], False, "input_ids of stage 0 of step 1"),
        ([*step_of(0, "a"), *step_of(1, "b"), *step_of(2, "x")], True, None),
    ],
)
def test_what_a_treatment_must_not_change(treatment, outputs, changed):
    control = [*step_of(0, "a"), *step_of(1, "b")]
    found = changed_before([control], [control, treatment], 1, outputs=outputs)
    assert (found is None) if changed is None else (changed in found)
    assert records_of_step(control, 1) == control[2:]


def tokens(chosen: str, logits: str):
    trial = [
        item(point, np.full((1,) * len(point.dims), ord(letter)))[0]
        for point, letter in ((points.LOGITS, logits), (points.TOKEN, chosen))
    ]
    return classify([trial, trial], [(), ()])


def test_of_arms_that_round_differently_the_chosen_tokens_are_compared():
    for chosen, verdict in (("a", "NO_EFFECT"), ("b", "CHANGES_RESULT")):
        arms = tokens("a", "x"), tokens(chosen, "y")
        assert judge_arms(*arms, compared="tokens") == verdict
        assert judge_arms(*arms) == "CHANGES_RESULT"


def test_arms_alternate_so_that_neither_is_always_first():
    order = [(arm[0], index) for arm, index in counterbalanced(3)]
    assert order == [("c", 0), ("t", 0), ("t", 1), ("c", 1), ("c", 2), ("t", 2)]
