"""Tokens against their own logits, whatever a floor says."""

import numpy as np
import pytest

from swarepro.compare.assessment import VerdictClass
from swarepro.report.assessment import assessment_document, assessment_report
from tests.unit.compare.assessing import large, run, small

CHUNKS = ((0, 5), (5, 6))
"""The first ends the prompt; either chooses a token."""


@pytest.mark.parametrize("change", [None, small], ids=["equal", "noise"])
@pytest.mark.parametrize("side", ["baseline", "target"])
@pytest.mark.parametrize("captured", [False, True])
def test_a_token_against_its_own_logits_is_wrong_and_neither_noise_nor_a_tie(
    assessed, change, side: str, captured: bool
) -> None:
    """Id 5 is not among the largest; 8 is."""
    good, bad = (7, 8), (7, 5)
    ours, theirs = (bad, good) if side == "baseline" else (good, bad)
    found = assessed(
        run(steps=CHUNKS, tokens=(ours,), chosen=ours if captured else None),
        run(change, steps=CHUNKS, tokens=(theirs,), chosen=theirs if captured else None),
    )
    assert found.verdict is VerdictClass.WRONG
    (only,) = found.above
    assert only == found.first
    assert (only.name, only.step, only.positions) == ("token" if captured else "logits", 1, (5,))
    assert only.reason == f"in the {side}, the token is not the largest of its own logits"
    report = assessment_report(found)
    assert report.headline == (
        f"WRONG. step 1, {only.name}: {only.reason}, at position 5; all before it is within the"
        " floor."
    )
    assert assessment_document(found)["first"]["reason"] == only.reason


@pytest.mark.parametrize(("change", "verdict"), [(None, "TIE"), (small, "NOISE")])
def test_another_of_the_largest_is_no_defect(assessed, change, verdict: str) -> None:
    """The negative control: the same runs, but for which of the largest was chosen."""
    found = assessed(
        run(steps=CHUNKS, tokens=((7, 8),), chosen=(7, 8)),
        run(change, steps=CHUNKS, tokens=((7, 3),), chosen=(7, 3)),
    )
    assert (found.verdict, found.above) == (verdict, ())


def test_a_token_that_no_session_keeps_is_held_against_its_logits_too(assessed) -> None:
    """Of a chunk that does not end the prompt: the manifest does not know it."""
    chunks = ((0, 3), (3, 5))
    sides = [run(steps=chunks, tokens=((7,),), chosen=(first, 7)) for first in (7, 1)]
    found = assessed(*sides)
    assert (found.verdict, found.first.step, found.first.positions) == ("WRONG", 0, (2,))
    assert "the token is not the largest of its own logits" in assessment_report(found).headline


def test_what_is_above_the_floor_before_the_token_comes_first(assessed) -> None:
    found = assessed(run(steps=CHUNKS), run(large, steps=CHUNKS, tokens=((7, 5),)))
    assert found.above[0].name == "L2_attention_output"
    assert found.above[-1].reason is not None


def test_a_token_that_is_no_id_of_the_model_is_wrong(assessed) -> None:
    found = assessed(*(run(steps=CHUNKS, chosen=(7, last)) for last in (8, 99)))
    assert (found.first.name, found.first.positions) == ("token", (5,))


def test_how_an_imported_run_was_sampled_nobody_knows(assessed) -> None:
    sides = run(steps=CHUNKS), run(steps=CHUNKS, tokens=((7, 5),))
    for side in sides:
        side.case = {"name": "elsewhere", "imported": {}}
    assert assessed(*sides).verdict is VerdictClass.TIE


def test_logits_that_are_no_numbers_choose_nothing(assessed) -> None:
    def change(point: str, rows: np.ndarray) -> None:
        if point == "logits":
            rows[5, 0] = np.nan

    sides = [run(change, steps=CHUNKS, tokens=tokens) for tokens in (((7, 8),), ((7, 5),))]
    assert not any(each.reason for each in assessed(*sides).above)


def test_without_logits_nobody_knows(assessed) -> None:
    sides = run(steps=CHUNKS), run(steps=CHUNKS, tokens=((7, 5),))
    for side in sides:
        side.items = [each for each in side.items if each[0].name != "logits"]
    assert assessed(*sides).verdict is VerdictClass.TIE
