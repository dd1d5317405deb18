"""What the search among known defects says, for every way in which it can end."""

from dataclasses import replace

import pytest

from swarepro.compare.explanation import Explanation, Hypothesis
from swarepro.points import PointKind
from swarepro.report.explanation import explanation_document, explanation_report


def defect(name: str, fit: str, **more) -> Hypothesis:
    return Hypothesis(fault=name, mechanism="B1", summary=f"{name} is wrong", fit=fit, **more)


EXACT = defect("first", "exact", differing=0, remainder=0.0, equal=9)
FAR = defect("far", "leaves", differing=70, remainder=0.31)
NONE = defect("idle", "none", differing=80)
BROKEN = defect("broken", "error", error="no pages")
EARLY = defect("early", "earlier", earlier="step 0 logits")


def found(*hypotheses: Hypothesis, **more) -> Explanation:
    made = Explanation(
        baseline="b",
        target="t",
        step=2,
        session=0,
        name="L5_attention_output",
        layer=5,
        kind=PointKind.VALUE,
        num_values=4096,
        baseline_differing=80,
        boundaries=12,
        hypotheses=hypotheses,
    )
    return replace(made, **more)


@pytest.mark.parametrize(
    ("explanation", "best", "words"),
    [
        (found(EXACT, FAR), ["first"], "gives with first (first is wrong); 0 of 4,096 values"),
        (found(EXACT, num_values=0), ["first"], "(first is wrong); to the byte."),
        (
            found(defect("near", "within", differing=7, remainder=0.01)),
            ["near"],
            "EXPLAINED. The target's L5_attention_output of step 2 is what the baseline gives with"
            " near (near is wrong); but for noise.",
        ),
        (
            found(EXACT, replace(EXACT, fault="second")),
            ["first", "second"],
            "A TIE of 2. The target's L5_attention_output of step 2 is what the baseline gives with"
            " any of first, second; 0 of 4,096 values differ.",
        ),
        (found(EXACT, replace(EXACT, fault="second", equal=8)), ["first"], "EXPLAINED."),
        (found(FAR, NONE), [], "None of 2 known defects gives the target's L5_attention_output"),
        (found(FAR, NONE), [], "; the nearest, far, leaves 31 %."),
        (found(replace(FAR, remainder=None)), [], "; far acts there, and gives something else."),
        (found(NONE), [], "None of 1 known defect gives"),
        (found(NONE), [], "; none of them acts there."),
        (found(NONE, baseline_differing=0), [], "; a healthy run does: the defect is not in the"),
    ],
)
def test_the_headline(explanation: Explanation, best: list[str], words: str) -> None:
    assert words in explanation_report(explanation).headline
    assert explanation_document(explanation)["best"] == best


def test_what_acts_there_is_listed_and_the_rest_is_counted() -> None:
    report = explanation_report(found(EXACT, FAR, NONE, BROKEN, EARLY))
    (grid,) = report.grids
    assert grid.rows == (
        ("first", "B1", "exact", "0", "0 %", "9 of 12"),
        ("far", "B1", "in part", "70", "31 %", "-"),
    )
    assert report.lines == (
        "Held against it: 5 known defects; `left` is of the difference between baseline and"
        " target.",
        "Not among these: 1 change nothing there; 1 would show earlier, where the runs agree; 1"
        " end with an error.",
    )
    assert explanation_report(found(NONE)).grids == ()


def test_the_document_has_all_of_them() -> None:
    document = explanation_document(found(EXACT, EARLY, BROKEN))
    assert [each["fit"] for each in document["hypotheses"]] == ["exact", "earlier", "error"]
    assert document["hypotheses"][1]["earlier"] == "step 0 logits"
    assert document["hypotheses"][2]["error"] == "no pages"
