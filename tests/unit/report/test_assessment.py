"""What is said of tokens that two runs chose otherwise."""

from dataclasses import replace
from math import inf

import pytest

from swarepro.compare.assessment import Assessment, Drift, Flip, Measured, VerdictClass
from swarepro.points import PointKind
from swarepro.report.assessment import assessment_document, assessment_report

FLIP = Flip(
    session=0,
    position=5,
    baseline=8,
    target=3,
    baseline_gap=0.01,
    target_gap=-0.02,
    apart=0.05,
    equal=False,
)
LOGITS = Measured(
    step=0,
    session=0,
    name="logits",
    point="logits",
    layer=None,
    kind=PointKind.VALUE,
    worst=1e-3,
    relative_l2=1e-3,
    cosine=1.0,
    limit=1e-2,
    limit_l2=1e-2,
)


def assessed(
    *flips: Flip, within: tuple[Measured, ...] = (LOGITS,), drift: Drift | None = None
) -> Assessment:
    return Assessment(
        baseline="b",
        target="t",
        floor="f",
        floor_kind="order",
        margin=4.0,
        verdict=VerdictClass.NOISE if within else VerdictClass.TIE,
        reason=None,
        compared=9,
        identical=9 - len(within),
        first=None,
        patterns=(),
        above=(),
        within=within,
        unjudged=(),
        unjudged_before=0,
        flips=flips,
        drift=drift,
        growth=(),
    )


def said(flip: Flip, *, within: tuple[Measured, ...]) -> tuple[str, str]:
    """Return the headline, and the line about the flip."""
    report = assessment_report(assessed(flip, within=within))
    return report.headline, report.lines[0]


def test_rounding_decides_where_each_run_chose_by_its_own_logits() -> None:
    assert "rounding decided" in said(FLIP, within=(LOGITS,))[1]


@pytest.mark.parametrize(
    ("gaps", "who"),
    [
        ((0.01, 0.02), "the target chose"),
        ((-0.01, -0.02), "the baseline chose"),
        ((-0.01, 0.02), "the baseline and the target chose"),
    ],
)
def test_no_rounding_chooses_the_smaller_logit(gaps: tuple[float, float], who: str) -> None:
    flip = replace(FLIP, baseline_gap=gaps[0], target_gap=gaps[1])
    line = said(flip, within=(LOGITS,))[1]
    assert f"{who} against its own logits" in line
    assert "rounding decided" not in line
    assert "-0.01" not in line


def test_a_tie_speaks_of_logits_that_were_seen() -> None:
    assert "logits too" in said(replace(FLIP, equal=True), within=())[0]
    unseen = replace(FLIP, equal=None, baseline_gap=None, target_gap=None, apart=None)
    headline, _ = said(unseen, within=())
    assert "logits too" not in headline
    assert "logits that were not captured" in headline


ABOVE = replace(
    LOGITS,
    name="L2_attention_output",
    point="L{layer}_attention_output",
    layer=2,
    step=3,
    worst=0.05,
    positions=(4, 5, 6, 9),
    heads=(1,),
    num_heads=8,
    num_rows=12,
)


@pytest.mark.parametrize(
    ("first", "unjudged_before", "how", "before"),
    [
        ({}, 0, "5 times what rounding explains", "all before it is within the floor"),
        ({"relative_l2": 0.07}, 0, "7 times what rounding explains", "all before it is within"),
        ({"is_source": True}, 0, "5 times what rounding explains", "nothing before it differs"),
        ({}, 2, "5 times what rounding explains", "2 boundaries before it could not be judged"),
        ({"worst": inf, "relative_l2": None}, 0, "it is not finite on one side alone", "all"),
        ({"limit": 0.0, "limit_l2": 0.0}, 0, "integers differ, which no rounding does", "all"),
        (
            {"reread": True, "worst": inf, "limit": 0.0, "limit_l2": 0.0},
            0,
            "rows that an earlier step wrote are read otherwise here",
            "all",
        ),
    ],
)
def test_the_headline_says_how_far_off_the_first_is_and_what_lies_before_it(
    first: dict[str, object], unjudged_before: int, how: str, before: str
) -> None:
    found = replace(
        assessed(),
        verdict=VerdictClass.WRONG,
        first=replace(ABOVE, **first),
        above=(replace(ABOVE, **first),),
        unjudged_before=unjudged_before,
    )
    assert assessment_report(found).headline.startswith(
        f"WRONG. step 3, L2_attention_output (layer 2, value): {how}, in 4 of 12 rows, positions"
        f" 4-6, 9, 1 of 8 heads; {before}"
    )


def test_drift_is_told_in_nat() -> None:
    drift = Drift(session=1, position=41, token=7, moved=-0.0264, kl=3e-4)
    found = assessed(drift=drift)
    assert (
        "The log-probability of the baseline's first choice moves by at most 0.0264 nat (session 1,"
        " position 41, token 7; KL divergence 0.0003 nat)." in assessment_report(found).lines
    )
    assert assessment_document(found)["drift"] == {
        "session": 1,
        "position": 41,
        "token": 7,
        "moved": -0.0264,
        "kl": 3e-4,
    }


def test_no_drift_is_not_told() -> None:
    still = Drift(session=0, position=4, token=7, moved=0.0, kl=0.0)
    for drift in (None, still):
        assert not any("nat" in line for line in assessment_report(assessed(drift=drift)).lines)
    assert assessment_document(assessed())["drift"] is None


SOURCE = replace(LOGITS, worst=2e-2, relative_l2=7e-1, positions=(3,), num_rows=4, is_source=True)


def test_the_table_says_by_how_much_its_limit_is_passed() -> None:
    """The headline's figure is in its row: a vector, or all rows together, whichever is worse."""
    found = replace(assessed(within=()), verdict=VerdictClass.WRONG, first=SOURCE, above=(SOURCE,))
    report = assessment_report(found)
    assert report.headline.startswith("WRONG. step 0, logits: 70 times what rounding explains")
    assert report.grids[0].columns[-1] == ">x limit"
    assert report.grids[0].rows[0][-3:] == ("0.02", "0.7", "70")
    unlimited = replace(SOURCE, limit=0.0, limit_l2=0.0)
    report = assessment_report(replace(found, first=unlimited, above=(unlimited,)))
    assert report.grids[0].rows[0][-1] == "-"


@pytest.mark.parametrize(
    ("verdict", "changes", "said"),
    [
        (VerdictClass.IDENTICAL, {}, "All 9 boundaries are equal byte for byte."),
        (
            VerdictClass.IDENTICAL,
            {"only_target": ("logits",)},
            "All 9 boundaries are equal byte for byte in the rows that both runs have.",
        ),
        (
            VerdictClass.IDENTICAL,
            {"compared": 1},
            "The 1 boundary that was compared is equal byte for byte.",
        ),
        (
            VerdictClass.NOISE,
            {"within": (LOGITS,)},
            "1 boundary differs, and rounding explains it: logits takes 10 % of its limit.",
        ),
        (
            VerdictClass.NOISE,
            {"within": (LOGITS, replace(LOGITS, name="token"))},
            "2 boundaries differ, and rounding explains all of them: the largest, logits, takes"
            " 10 % of its limit.",
        ),
    ],
)
def test_a_headline_claims_what_was_compared(
    verdict: VerdictClass, changes: dict[str, object], said: str
) -> None:
    found = replace(assessed(within=()), verdict=verdict, **changes)
    assert assessment_report(found).headline == f"{verdict}. {said}"


def test_what_one_run_alone_has_is_not_said_to_agree() -> None:
    found = replace(assessed(within=()), verdict=VerdictClass.WRONG, first=SOURCE, above=(SOURCE,))
    assert assessment_report(found).headline.endswith("; nothing before it differs.")
    found = replace(found, only_baseline=("after_layer_0",))
    assert assessment_report(found).headline.endswith(
        "; nothing before it that both runs have differs."
    )


def test_tokens_alone_are_not_called_above_the_floor() -> None:
    token = replace(SOURCE, name="token", point="token", worst=inf, limit=0.0, limit_l2=0.0)
    found = replace(assessed(within=()), verdict=VerdictClass.TIE, first=token, above=(token,))
    assert assessment_report(found).grids[0].title == "Tokens that were chosen otherwise"
    found = replace(found, verdict=VerdictClass.WRONG)
    assert assessment_report(found).grids[0].title == "1 boundary above the floor"


def test_points_that_were_left_out_are_named() -> None:
    """Where no value differs, the slots may: by position they are not looked at."""
    found = replace(assessed(within=()), skipped=("full_slots", "L{layer}_kv_slice_pre_write"))
    assert assessment_report(found).lines[-2] == (
        "Not compared, because it is no row of a position: full_slots, L*_kv_slice_pre_write."
    )
    assert assessment_document(found)["skipped"] == [
        "full_slots",
        "L{layer}_kv_slice_pre_write",
    ]
    assert not any("Not compared" in line for line in assessment_report(assessed()).lines)
