"""What a dependence on the fill means, from hand-made findings."""

import re

import numpy as np
import pytest

from swarepro import points
from swarepro.compare.fills import FillDependence, FillProbe, compare_fills
from swarepro.errors import IncomparableError
from swarepro.points import PointKind
from swarepro.report.fill import fill_document, fill_report
from tests.unit.bundle.factory import item


def at(step: int) -> FillDependence:
    return FillDependence(
        step=step, stage=0, session=0, name="L0_attention_output", kind=PointKind.VALUE
    )


@pytest.mark.parametrize(
    ("by_large", "by_nan", "verdict", "first", "masked"),
    [
        ((), (), "INDEPENDENT", None, None),
        ((), (at(1), at(2)), "MASKED_LANE", at(1), at(1)),
        ((at(2),), (at(2),), "UNWRITTEN_READ", at(2), None),
        # NaN shows earlier, in a masked lane; what was read and used comes later, and counts.
        ((at(2),), (at(1), at(2)), "UNWRITTEN_READ", at(2), at(1)),
    ],
)
def test_the_verdict_and_the_boundary_that_shows_it(by_large, by_nan, verdict, first, masked):
    probe = FillProbe(case="x", compared=9, by_large=by_large, by_nan=by_nan, left_out=())
    assert probe.verdict == verdict
    assert probe.first == first
    assert probe.first_masked == masked
    text = fill_report(probe).headline
    assert text.startswith(f"{verdict}: ")
    for found in (first, masked):
        assert found is None or f"step {found.step}, L0_attention_output" in text
    assert ("Besides, a MASKED_LANE" in text) is (
        verdict == "UNWRITTEN_READ" and masked is not None
    )
    assert "Left out" not in fill_report(probe).lines[0]
    shown = fill_document(probe)["first_masked"]
    assert (shown and shown["step"]) == (masked and masked.step)


def records(*captured):
    return [item(point, np.zeros(4), dtype="I64", layer=layer)[0] for point, layer in captured]


def test_left_out_is_what_was_captured_and_not_compared():
    before, value = (points.KV_SLICE_PRE_WRITE, 0), (points.O_PROJ, 0)
    for captured, left_out in (((value,), ()), ((before, value), (before[0].name,))):
        runs = dict.fromkeys(("zero", "large", "nan"), records(*captured))
        found = compare_fills("x", runs)
        assert (found.compared, found.left_out) == (1, left_out)
        assert found.verdict == "INDEPENDENT"


@pytest.mark.parametrize(
    ("captured", "said"),
    [
        ((), "could show the fill was captured: no boundary"),
        (
            ((points.FULL_SLOTS, None), (points.SWA_SLOTS, None)),
            "was captured: full_slots, swa_slots",
        ),
        (((points.KV_SLICE_PRE_WRITE, 0),), "was captured: L{layer}_kv_slice_pre_write"),
    ],
)
def test_what_no_memory_reaches_says_nothing(captured, said):
    runs = dict.fromkeys(("zero", "large", "nan"), records(*captured))
    with pytest.raises(IncomparableError, match=re.escape(said)) as caught:
        compare_fills("x", runs)
    assert caught.value.hint is not None
    assert caught.value.exit_code == 2


def test_slots_that_depend_on_the_fill_are_a_finding():
    """The control: with nothing else captured, what differs is said."""
    one, other = (item(points.SWA_SLOTS, np.full(4, value), dtype="I64")[0] for value in (1, 2))
    found = compare_fills("x", {"zero": [one], "large": [other], "nan": [one]})
    assert (found.verdict, found.first.name) == ("UNWRITTEN_READ", "swa_slots")
