"""Calls for slots that did a part of what they had to: down to a single page, and not otherwise."""

import pytest

from swarepro.errors import CapacityError
from swarepro.kvcache import KVGroup
from swarepro.ownership import Owner
from tests.unit.ownership.defects import (
    AllocatesBeforeItRefuses,
    IgnoresExhaustion,
    SkipsAllocation,
)
from tests.unit.ownership.stage import SmallStage, on_allocator

FULL, SLIDING = KVGroup.FULL, KVGroup.SLIDING


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("had", [0, 2])
def test_half_an_allocation_of_one_page(page_size, had):
    """A refused call leaves session 0 one page more than it had."""
    stage = SmallStage(
        on_allocator(AllocatesBeforeItRefuses),
        capacity=4 * page_size,
        swa_capacity=4 * page_size,
        page_size=page_size,
    )
    start = had * page_size
    if had:
        stage.run((0, 0, start))
    with pytest.raises(CapacityError):
        stage.run((0, start, start + 1), (1, 0, 5 * page_size))
    found = {violation.group: violation for violation in stage.log.violations}
    assert stage.first.kind == "exhaustion"
    gained = tuple(range(start, start + page_size))
    for group, pool in ((FULL, "full"), (SLIDING, "SWA")):
        assert (found[group].kind, found[group].positions) == ("exhaustion", gained)
        assert found[group].user == Owner(session=0, position=start)
        assert f"got {pool} slots from a call that was refused" in found[group].message


@pytest.mark.parametrize("page_size", [1, 4])
def test_a_refused_call_that_did_nothing_is_silent(page_size):
    stage = SmallStage(capacity=4 * page_size, swa_capacity=4 * page_size, page_size=page_size)
    stage.run((0, 0, page_size))
    with pytest.raises(CapacityError):
        stage.run((0, page_size, page_size + 1), (1, 0, 4 * page_size))
    assert stage.log.violations == ()


def test_one_page_too_few():
    stage = SmallStage(on_allocator(IgnoresExhaustion), capacity=64, swa_capacity=16, page_size=4)
    stage.run((0, 0, 17))
    assert (stage.first.kind, stage.first.positions) == ("exhaustion", (16,))
    assert "the call needed 20 and 16 could be had" in stage.first.message


@pytest.mark.parametrize("rows", [13, 16])
def test_a_call_that_takes_the_last_page_was_not_short_of_pages(rows):
    """What is missing then was not handed out, and that is another defect."""
    stage = SmallStage(on_allocator(SkipsAllocation), capacity=64, swa_capacity=16, page_size=4)
    stage.run((0, 0, rows))
    assert stage.kinds == ["sentinel-store"]
