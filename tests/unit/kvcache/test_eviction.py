"""Eviction out of the window. Properties and saboteurs as in test_lifecycle.py."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarepro.errors import CapacityError, PositionGapError, SessionError
from swarepro.kvcache import SlotLifecycle
from tests.unit.kvcache import saboteurs
from tests.unit.kvcache.owners import balanced, check_books, fresh, snapshot, spans, swa_slots

PAGE_SIZES = [1, 3, 4, 16, 64]
paged = pytest.mark.parametrize("page_size", PAGE_SIZES)


def visible_is_kept(owner: SlotLifecycle, ends: list[int]) -> bool:
    """Evict after each step; what its next query sees is live, and so is a margin of a page."""
    size, start = owner.page_size, 0
    assert owner.window_left is not None
    for end in ends:
        owner.ensure(spans((0, start, end)))
        if 0 in swa_slots(owner, 0, end)[max(0, start - owner.window_left) :]:
            return False  # a query of this step sees a tombstone
        before = max(0, end - owner.window_left)
        owner.evict(0, before)
        slots = swa_slots(owner, 0, end)
        evicted = slots.count(0)
        if any(slots[:evicted]) or evicted % size or not balanced(owner):
            return False  # not a prefix of whole pages
        if evicted > max(0, before - size):
            return False  # of the margin
        if before >= 2 * size and evicted <= before - 3 * size:
            return False  # too little
        start = end
    return True


@given(
    page_size=st.sampled_from(PAGE_SIZES),
    window_left=st.integers(0, 70),
    rows=st.lists(st.integers(1, 40), min_size=1, max_size=12),
)
def test_eviction_frees_all_but_what_a_query_sees_and_a_page(page_size, window_left, rows):
    ends = [sum(rows[: count + 1]) for count in range(len(rows))]
    owner = fresh(500, swa_pages=500, page_size=page_size, window_left=window_left)
    assert visible_is_kept(owner, ends)


@paged
def test_one_page_too_many_is_seen(page_size: int) -> None:
    ends = list(range(1, 8 * page_size))
    size: dict[str, Any] = {"pages": 99, "swa_pages": 99, "page_size": page_size}
    assert visible_is_kept(fresh(**size), ends)
    for kind in (saboteurs.EvictsOnePageTooMany, saboteurs.EvictsWithoutItsMargin):
        assert not visible_is_kept(fresh(**size, make=kind), ends)


@pytest.mark.parametrize(
    ("page_size", "before", "evicted"),
    [
        *((1, before, max(0, before - 1)) for before in range(6)),
        *((4, before, 0) for before in range(8)),
        (4, 8, 4),
        (4, 11, 4),
        (4, 12, 8),
        (64, 127, 0),
        (64, 128, 64),
    ],
)
def test_where_eviction_ends(page_size: int, before: int, evicted: int) -> None:
    owner = fresh(page_size=page_size)
    owner.ensure(spans((0, 0, 6 * page_size)))
    for _ in range(2):  # and again: nothing more
        owner.evict(0, before)
        assert owner.tables[0].evicted == evicted
        slots = swa_slots(owner, 0, 6 * page_size)
        assert [position for position, slot in enumerate(slots) if not slot] == list(range(evicted))
        assert owner.full_slots(0, 6 * page_size).tolist() == list(range(page_size, 7 * page_size))
        assert owner.swa is not None
        assert owner.swa.num_free == 2 + evicted // page_size


def test_evicting_less_than_before_changes_nothing() -> None:
    owner = fresh(page_size=4)
    owner.ensure(spans((0, 0, 24)))
    owner.evict(0, 16)
    before = snapshot(owner)
    for earlier in (16, 12, 5, 0):
        owner.evict(0, earlier)
        assert snapshot(owner) == before


def test_evicted_slots_are_handed_out_again_and_then_only_once() -> None:
    def reuses_slots(owner: SlotLifecycle) -> bool:
        owner.ensure(spans((0, 0, 20)))
        first = swa_slots(owner, 0, 8)
        owner.evict(0, 12)
        owner.ensure(spans((1, 0, 20)))
        again = swa_slots(owner, 1, 20)
        return again[12:] == first and balanced(owner) and 0 not in again

    size: dict[str, Any] = {"pages": 16, "swa_pages": 8, "page_size": 4}
    assert reuses_slots(fresh(**size))
    assert not reuses_slots(fresh(**size, make=saboteurs.LeavesTheMapping))


@paged
def test_a_small_swa_pool_serves_a_prompt_of_any_length(page_size: int) -> None:
    """Window, margin, and a chunk that may begin and end inside a page: that is all it takes."""
    window_left, rows = 5, page_size
    needed = -(-(window_left + rows) // page_size) + 2
    owner = fresh(300, swa_pages=needed, page_size=page_size, window_left=window_left)
    for start in range(0, 300 * page_size, rows):
        owner.ensure(spans((0, start, start + rows)))
        assert 0 not in swa_slots(owner, 0, start + rows)[max(0, start - window_left) :]
        owner.evict(0, max(0, start + rows - window_left))
    check_books(owner)
    without = fresh(300, swa_pages=needed, page_size=page_size, window_left=window_left)
    with pytest.raises(CapacityError, match="the SWA pool"):
        for start in range(0, 300 * page_size, rows):
            without.ensure(spans((0, start, start + rows)))


@pytest.mark.parametrize(
    ("start", "end", "lost"),
    [
        (0, 1, "0 to 0"),
        (0, 30, "0 to 15"),
        (15, 30, "12 to 15"),  # its own row
        (16, 17, "13 to 15"),  # what its query sees
        (18, 30, "15 to 15"),
        (19, 20, None),
        (23, 24, None),
        (24, 30, None),  # at the frontier
    ],
)
def test_no_span_goes_back_behind_an_eviction(start: int, end: int, lost: str | None) -> None:
    owner = fresh(12, swa_pages=12, page_size=4, window_left=3)
    owner.ensure(spans((0, 0, 24), (1, 0, 1)))
    owner.evict(0, 20)  # of positions 0 to 15
    before = snapshot(owner)
    for ask in (owner.check, owner.ensure):
        if lost is None:
            ask(spans((0, start, end)))
            continue
        with pytest.raises(SessionError) as caught:
            ask(spans((1, 1, 2), (0, start, end)))
        assert not isinstance(caught.value, CapacityError | PositionGapError)
        assert f"session 0 goes back to positions {start} to {end - 1}" in caught.value.message
        assert f"those of positions {lost} were evicted" in caught.value.message
        assert snapshot(owner) == before


def test_without_sliding_layers_every_position_can_be_computed_again() -> None:
    owner = fresh(swa_pages=None)
    owner.ensure(spans((0, 0, 8)))
    owner.evict(0, 6)
    owner.ensure(spans((0, 0, 8)))


@paged
def test_eviction_ends_at_the_frontier(page_size: int) -> None:
    """However far ``before`` lies: no position beyond is a tombstone before it exists."""
    owner, wanted = fresh(page_size=page_size), fresh(page_size=page_size)
    end = 3 * page_size + 1
    for one, before in ((owner, 1000), (wanted, end)):
        one.ensure(spans((0, 0, end)))
        one.evict(0, before)
        one.ensure(spans((0, end, 6 * page_size)))
    assert owner.tables[0].evicted <= end
    assert snapshot(owner) == snapshot(wanted)
    assert balanced(owner)
