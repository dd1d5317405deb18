import pytest

from swarepro.report.bound import bound_of
from tests.unit.report.made import SLOTS, STORE, VALUE, divergence


def test_each_milestone_has_its_own_bound() -> None:
    found = divergence(first=SLOTS, exact_value=False)
    assert bound_of(found, SLOTS) == bound_of(found, STORE) == "exact"
    assert bound_of(found, VALUE) == "here-or-before"
    found = divergence(first=SLOTS, exact_state=False)
    assert bound_of(found, STORE) == "here-or-before"
    assert bound_of(found, VALUE) == "exact"


def test_the_first_of_all_is_judged_as_such() -> None:
    assert bound_of(divergence(exact=False), STORE) == "here-or-before"


def test_another_boundary_has_none() -> None:
    with pytest.raises(ValueError, match="swa_slots of step 0"):
        bound_of(divergence(), SLOTS)
