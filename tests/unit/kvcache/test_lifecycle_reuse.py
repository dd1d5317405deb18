"""What ends: finished sessions, kept prefixes, and who gets their slots.

Properties and saboteurs as in test_lifecycle.py.
"""

import re
from typing import Any

import pytest

from swarepro.errors import CapacityError, ReuseError, SessionError
from swarepro.kvcache import SlotLifecycle
from tests.unit.kvcache import saboteurs
from tests.unit.kvcache.owners import balanced, check_books, fresh, snapshot, spans, swa_slots

PAGE_SIZES = [1, 3, 4, 16, 64]
paged = pytest.mark.parametrize("page_size", PAGE_SIZES)


def refused(owner: SlotLifecycle, *reuse: int) -> str:
    """The reuse is refused, without a change; why."""
    before = snapshot(owner)
    with pytest.raises(ReuseError) as caught:
        owner.reuse(*reuse)
    assert snapshot(owner) == before
    return caught.value.message


# The end of a session


@paged
def test_a_finished_session_gives_everything_back(page_size: int) -> None:
    def gives_all_back(owner: SlotLifecycle) -> bool:
        owner.ensure(spans((0, 0, 3 * page_size + 1), (1, 0, 2)))
        owner.evict(0, 3 * page_size)
        owner.finish(0, keep=False)
        other = (page_size * (-(-2 // page_size)),)
        free = 8 * page_size - other[0]
        if check_books(owner)["full"][0] != free or check_books(owner)["swa"][0] != free:
            return False
        owner.finish(0, keep=False)  # it owns nothing: nothing to end
        owner.finish(1, keep=False)
        return list(owner.tables) == [] and balanced(owner) and not owner.mapping.any()

    assert gives_all_back(fresh(page_size=page_size))
    kinds = (
        saboteurs.LeaksAtFinish,
        saboteurs.LeaksTheSwaPool,
        saboteurs.FreesTwice,
        saboteurs.LeavesTheMapping,
    )
    for kind in kinds:
        with pytest.raises((AssertionError, SessionError)):
            assert gives_all_back(fresh(page_size=page_size, make=kind))


def test_the_end_of_a_session_leaves_the_others_alone() -> None:
    owner = fresh(page_size=4)
    owner.ensure(spans((0, 0, 9), (1, 0, 6)))
    full, swa = owner.full_slots(1, 6).tolist(), swa_slots(owner, 1, 6)
    owner.finish(0, keep=False)
    owner.ensure(spans((2, 0, 20)))
    assert owner.full_slots(1, 6).tolist() == full
    assert swa_slots(owner, 1, 6) == swa


def test_kept_slots_are_evictable_and_no_longer_live_or_reserved() -> None:
    owner = fresh(page_size=4)
    owner.ensure(spans((0, 0, 18), (1, 0, 3)))
    owner.evict(0, 12)
    owner.finish(0, keep=True)
    assert check_books(owner) == {"full": (8, 3, 20, 1), "swa": (16, 3, 12, 1)}
    assert list(owner.tables) == [1, 0]


def test_a_kept_session_cannot_go_on() -> None:
    """It would be given up to make room for itself, and leave a half allocated step behind."""
    owner = fresh(4, swa_pages=4, page_size=4)
    owner.ensure(spans((0, 0, 8), (1, 0, 4)))
    owner.finish(0, keep=True)
    before = snapshot(owner)
    for end in (8, 9, 16):
        with pytest.raises(SessionError, match="session 0 is finished and kept for reuse"):
            owner.ensure(spans((1, 4, 5), (0, 8, end)))
        assert snapshot(owner) == before


# Kept sessions are given up


def three_kept(make: type[SlotLifecycle] = SlotLifecycle) -> SlotLifecycle:
    """Sessions 2, 0 and 1 were finished in this order and kept; 2 pages are free."""
    owner = fresh(page_size=4, make=make)
    owner.ensure(spans((0, 0, 8), (1, 0, 8), (2, 0, 5)))
    for session in (2, 0, 1):
        owner.finish(session, keep=True)
    return owner


@pytest.mark.parametrize(
    ("pages", "left"),
    [
        (0, [2, 0, 1]),
        (2, [2, 0, 1]),
        (3, [0, 1]),
        (4, [0, 1]),
        (5, [1]),
        (6, [1]),
        (7, []),
        (8, []),
    ],
)
def test_kept_sessions_go_in_the_order_of_their_end_and_only_when_needed(pages, left) -> None:
    def goes_in_order(owner: SlotLifecycle) -> bool:
        owner.ensure(spans((3, 0, 4 * pages)))
        kept = [session for session, table in owner.tables.items() if table.kept]
        return kept == left and balanced(owner)

    assert goes_in_order(three_kept())
    if left:
        assert not goes_in_order(three_kept(saboteurs.GivesUpForNothing))
    if left in ([0, 1], [1]):
        assert not goes_in_order(three_kept(saboteurs.GivesUpTheLast))


def test_a_call_that_not_even_all_kept_sessions_make_room_for_gives_up_none() -> None:
    owner = three_kept()
    before = snapshot(owner)
    with pytest.raises(CapacityError, match=r"needs 36 more .* has 32 free or evictable of 32"):
        owner.ensure(spans((3, 0, 36)))
    assert snapshot(owner) == before


def test_the_tombstones_of_a_kept_session_make_no_room() -> None:
    """3 of its 5 pages have SWA slots no more; they are free, and not evictable too."""
    owner = fresh(9, swa_pages=5, page_size=4)
    owner.ensure(spans((0, 0, 20)))
    owner.evict(0, 16)
    owner.finish(0, keep=True)
    before = snapshot(owner)
    with pytest.raises(CapacityError, match="the SWA pool needs 24 more slots and has 20 free"):
        owner.ensure(spans((1, 0, 21)))
    assert snapshot(owner) == before


def test_a_kept_session_goes_when_the_swa_pool_alone_is_short() -> None:
    owner = fresh(9, swa_pages=3, page_size=4)
    owner.ensure(spans((0, 0, 8)))
    owner.finish(0, keep=True)
    owner.ensure(spans((1, 0, 4)))
    assert list(owner.tables) == [0, 1]
    owner.ensure(spans((1, 4, 5)))
    assert list(owner.tables) == [1]
    assert check_books(owner) == {"full": (28, 5, 0, 3), "swa": (4, 5, 0, 3)}


# Reuse


def kept(
    rows: int, *, before: int = 0, page_size: int = 4, window_left: int = 3, **other: Any
) -> SlotLifecycle:
    """Session 0 computed ``rows`` positions, evicted below ``before``, and was kept."""
    owner = fresh(16, swa_pages=16, page_size=page_size, window_left=window_left, **other)
    owner.ensure(spans((0, 0, rows)))
    owner.evict(0, before)
    owner.finish(0, keep=True)
    return owner


@paged
@pytest.mark.parametrize("pages", [1, 2, 5])
def test_a_prefix_keeps_its_slots_and_the_rest_is_freed(page_size: int, pages: int) -> None:
    def takes_over(owner: SlotLifecycle) -> bool:
        rows = pages * page_size
        full, swa = owner.full_slots(0, rows).tolist(), swa_slots(owner, 0, rows)
        assert owner.reusable(0, 99 * page_size) == 5 * page_size
        owner.reuse(1, 0, rows)
        same = owner.full_slots(1, rows).tolist() == full and swa_slots(owner, 1, rows) == swa
        counts = ((16 - pages) * page_size, rows, 0, 0)
        return (
            same
            and list(owner.tables) == [1]
            and not owner.tables[1].kept
            and owner.tables[1].allocated == rows
            and check_books(owner) == {"full": counts, "swa": counts}
        )

    assert takes_over(kept(5 * page_size, page_size=page_size))
    if pages < 5:
        leaky = kept(5 * page_size, page_size=page_size, make=saboteurs.ReuseLeaksTheRest)
        with pytest.raises(AssertionError):
            takes_over(leaky)


def test_the_new_session_goes_on_behind_the_prefix() -> None:
    owner = kept(18)
    owner.reuse(7, 0, 12)
    prefix = owner.full_slots(7, 12).tolist()
    owner.ensure(spans((7, 12, 15), (8, 0, 2)))
    assert owner.full_slots(7, 12).tolist() == prefix
    assert check_books(owner)["full"] == (44, 17, 0, 3)


@pytest.mark.parametrize(
    ("rows", "window_left", "before", "works"),
    [
        (16, 4, 16, True),  # evicted: 12. A query at 16 sees 12 to 15
        (16, 5, 16, False),  # and 11
        (12, 4, 16, False),  # at 12 it sees 8 to 11, tombstones
        (20, 8, 16, True),
        (20, 9, 16, False),
        (8, 99, 0, True),  # nothing was evicted: the window reaches the beginning
        (8, 99, 8, False),
        (4, 4, 12, False),  # nothing of it is left
    ],
)
def test_a_prefix_whose_window_has_a_tombstone_is_refused(rows, window_left, before, works) -> None:
    def right(owner: SlotLifecycle) -> bool:
        if not works:
            message = refused(owner, 1, 0, rows)
            return owner.reusable(0, rows) == 0 and "SWA slots from position" in message
        owner.reuse(1, 0, rows)
        window = swa_slots(owner, 1, rows)[max(0, rows - window_left) :]
        return 0 not in window and balanced(owner)

    def owner(make: type[SlotLifecycle] = SlotLifecycle) -> SlotLifecycle:
        return kept(22, before=before, window_left=window_left, make=make)

    assert right(owner())
    broken = saboteurs.ReuseForgetsTombstones if works else saboteurs.ReusesTombstones
    if before:
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            assert right(owner(broken))


@pytest.mark.parametrize(
    ("rows", "of", "why"),
    [
        (6, 0, "it holds 18 positions in pages of 4"),
        (1, 0, "it holds 18 positions in pages of 4"),
        (20, 0, "it holds 18 positions in pages of 4"),  # of which 2 are reserved
        (18, 0, "it holds 18 positions in pages of 4"),
        (0, 0, ""),
        (4, 9, "it is not kept"),
        (0, 9, "it is not kept"),
        (4, 2, "it is not kept"),  # it is running
        (0, 2, "it is not kept"),
    ],
)
def test_what_cannot_be_reused_is_refused_and_nothing_changes(rows, of, why) -> None:
    owner = kept(18)
    owner.ensure(spans((2, 0, 8)))
    message = refused(owner, 1, of, rows)
    assert message.startswith(f"session 1 cannot reuse {rows} rows of session {of}: ")
    assert why in message


def test_a_session_that_owns_slots_cannot_reuse() -> None:
    owner = kept(18)
    owner.ensure(spans((2, 0, 8)))
    assert refused(owner, 2, 0, 4).endswith("session 2 owns slots already")
    assert refused(owner, 0, 0, 4).endswith("session 0 owns slots already")


def test_a_reuse_that_fails_late_is_seen() -> None:
    owner = kept(18, make=saboteurs.ReuseFailsLate)
    with pytest.raises(AssertionError):
        refused(owner, 1, 0, 6)


def test_a_prefix_that_was_given_up_or_freed_or_taken_cannot_be_reused() -> None:
    owner = kept(18)
    owner.ensure(spans((1, 0, 64)))
    assert re.search("it is not kept", refused(owner, 2, 0, 8))
    taken = kept(18)
    taken.reuse(1, 0, 8)
    refused(taken, 2, 0, 8)
    taken.finish(1, keep=False)
    refused(taken, 2, 1, 8)


def test_a_reused_prefix_can_be_kept_and_reused_again() -> None:
    owner = kept(22, before=12)
    for session in (1, 2, 3):
        owner.reuse(session, session - 1, 16)
        owner.ensure(spans((session, 16, 21)))
        owner.finish(session, keep=True)
    assert check_books(owner) == {"full": (40, 0, 24, 0), "swa": (48, 0, 16, 0)}


def test_reset_forgets_kept_sessions() -> None:
    owner = kept(18)
    owner.reset()
    refused(owner, 1, 0, 8)
    assert check_books(owner) == {"full": (64, 0, 0, 0), "swa": (64, 0, 0, 0)}
