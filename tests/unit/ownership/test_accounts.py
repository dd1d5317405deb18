"""The account of a pool comes from the allocator's books alone, and its counts sum exactly."""

import pytest

from swarepro.kvcache import KVGroup, SlotLifecycle
from swarepro.ownership import slot_accounts
from swarepro.plan import Span


def lifecycle(**sizes) -> SlotLifecycle:
    return SlotLifecycle(
        **{"capacity": 32, "swa_capacity": 24, "page_size": 4, "window_left": 7} | sizes
    )


def test_every_category():
    owner = lifecycle()
    owner.ensure([Span(session=0, start=0, end=10), Span(session=1, start=0, end=6)])
    owner.evict(0, 8)
    owner.finish(1, keep=True)
    full, sliding = slot_accounts(owner)
    assert (full.group, sliding.group) == (KVGroup.FULL, KVGroup.SLIDING)
    counts = [(x.capacity, x.free, x.live, x.evictable, x.reserved) for x in (full, sliding)]
    assert counts == [(32, 12, 10, 8, 2), (24, 8, 6, 8, 2)]
    assert (full.positions, sliding.positions) == (16, 12)  # the kept ones; 4 are evicted
    assert full.owners == ((0, 0, tuple(range(4, 14))), (1, 0, tuple(range(16, 22))))
    assert sliding.owners == ((0, 4, tuple(range(8, 14))), (1, 0, tuple(range(16, 22))))
    assert full.is_exact and sliding.is_exact


def test_without_sliding_layers_there_is_one_account():
    (full,) = slot_accounts(lifecycle(swa_capacity=None, window_left=None))
    assert (full.group, full.free, full.owners) == (KVGroup.FULL, 32, ())


@pytest.mark.parametrize("sabotage", ["leak", "twice", "shared"])
def test_counts_that_do_not_sum_are_seen(sabotage):
    owner = lifecycle()
    owner.ensure([Span(session=0, start=0, end=10)])
    assert owner.swa is not None
    if sabotage == "leak":
        owner.swa.free_list = owner.swa.free_list[1:]
    elif sabotage == "twice":
        owner.swa.free(owner.swa.free_list[:1])
    else:
        owner.mapping[8:12] = owner.mapping[4:8]
    assert [account.is_exact for account in slot_accounts(owner)] == [True, False]


def test_a_skipped_allocation_shows_positions_that_own_nothing():
    owner = lifecycle()
    owner.ensure([Span(session=0, start=0, end=10)])
    owner.mapping.zero_()
    _, sliding = slot_accounts(owner)
    assert (sliding.positions, sliding.live, sliding.owners) == (10, 0, ())


def test_what_a_kept_session_lost_to_an_eviction_is_not_evictable():
    owner = lifecycle()
    owner.ensure([Span(session=0, start=0, end=14)])
    owner.evict(0, 8)
    owner.finish(0, keep=True)
    full, sliding = slot_accounts(owner)
    assert (full.evictable, sliding.evictable) == (16, 12)
    assert (full.live, full.reserved, sliding.live, sliding.reserved) == (0, 0, 0, 0)
    assert full.is_exact and sliding.is_exact


def test_the_sentinel_is_in_no_count():
    """Unmapped: the rest of the last page, then a position in the middle."""
    owner = lifecycle()
    owner.ensure([Span(session=0, start=0, end=10)])
    owner.mapping[14:16] = 0
    assert slot_accounts(owner)[1].reserved == 0
    owner.mapping[7] = 0
    _, sliding = slot_accounts(owner)
    assert (sliding.live, sliding.reserved, sliding.positions) == (9, 0, 10)
    assert sliding.owners == ((0, 0, (4, 5, 6)), (0, 4, tuple(range(8, 14))))
    owner.tables[0].kept = True
    assert slot_accounts(owner)[1].evictable == 9


def test_owners_are_in_the_order_of_their_sessions():
    """The books list a kept session behind those that began after it."""
    owner = lifecycle()
    owner.ensure([Span(session=session, start=0, end=2) for session in (1, 0, 2)])
    owner.finish(0, keep=True)
    for account in slot_accounts(owner):
        assert [session for session, _, _ in account.owners] == [0, 1, 2]


def test_positions_of_a_kept_session_that_lost_slots_to_evictions():
    owner = lifecycle()
    owner.ensure([Span(session=0, start=0, end=10)])
    owner.evict(0, 8)
    owner.finish(0, keep=True)
    full, sliding = slot_accounts(owner)
    assert (full.positions, sliding.positions) == (10, 6)
    assert (sliding.live, sliding.evictable) == (0, 8)
