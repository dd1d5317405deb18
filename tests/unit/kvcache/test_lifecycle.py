"""The lifecycle of slots: each property with a sabotage that breaks it and has to be caught.

A property is a function of an owner; it is asserted for the real one and must fail for the
saboteur beside it.
"""

from collections.abc import Callable

import pytest
import torch

from swarepro.errors import CapacityError, PositionGapError, SessionError
from swarepro.kvcache import HybridKVCache, KVGroup, KVGroupSpec, SlotLifecycle
from swarepro.plan import Span, Step
from swarepro.runtime.batch import build_batch
from swarepro.runtime.parts import Allocator
from tests.unit.kvcache import saboteurs
from tests.unit.kvcache.owners import (
    balanced,
    check_books,
    faulty,
    fresh,
    snapshot,
    spans,
    swa_slots,
)

PAGE_SIZES = [1, 3, 4, 16, 64]
paged = pytest.mark.parametrize("page_size", PAGE_SIZES)


def fails(check: Callable[[Allocator], bool], owner: Allocator) -> bool:
    """Whether a property does not hold, or the owner breaks down on the way."""
    try:
        return not check(owner)
    except (AssertionError, LookupError, SessionError):
        return True


# One session


def owns_distinct_real_slots(owner: Allocator) -> bool:
    owner.ensure(spans((0, 0, 3)))
    owner.ensure(spans((0, 3, 5)))
    slots = swa_slots(owner, 0, 5)
    full = owner.full_slots(0, 5).tolist()
    return min(slots + full) >= owner.page_size and len(set(slots)) == len(set(full)) == 5


@paged
def test_every_position_owns_a_distinct_slot_that_is_not_the_sentinel(page_size: int) -> None:
    assert owns_distinct_real_slots(fresh(page_size=page_size))
    for name in ("skip-swa-allocation", "swa-rows-alias-slot-0"):
        assert fails(owns_distinct_real_slots, faulty(name, fresh(page_size=page_size)))
    broken = fresh(page_size=page_size, make=saboteurs.MapsNothing)
    assert fails(owns_distinct_real_slots, broken)


def test_a_lifecycle_gated_on_what_is_asked_is_caught() -> None:
    """The control for "no branch on a case": an owner that serves only some calls."""
    assert fails(owns_distinct_real_slots, fresh(make=saboteurs.OnlyShortCalls))


@pytest.mark.parametrize("cuts", [[8], [1] * 8, [3, 5]])
def test_a_single_session_with_pages_of_one_slot_gets_the_slots_1_2_3(cuts: list[int]) -> None:
    """As before there were pages and several sessions: bundles of then stay comparable."""
    owner, start = fresh(), 0
    for rows in cuts:
        owner.ensure(spans((0, start, start + rows)))
        start += rows
    assert owner.full_slots(0, 8).tolist() == list(range(1, 9))
    assert swa_slots(owner, 0, 8) == list(range(1, 9))


@paged
def test_slots_come_in_the_same_order_whatever_the_chunking(page_size: int) -> None:
    def after(cuts: list[int], make: type[SlotLifecycle] = SlotLifecycle) -> tuple[object, ...]:
        owner, start = fresh(70, swa_pages=70, page_size=page_size, make=make), 0
        for rows in cuts:
            owner.ensure(spans((0, start, start + rows)))
            start += rows
        return snapshot(owner)

    assert after([64, 3]) == after([67]) == after([1] * 67)
    assert after([64, 2]) != after([67])
    if page_size < 64:
        broken = saboteurs.OrderDependsOnChunks
        assert after([64, 3], broken) != after([67], broken)


@paged
def test_the_mapping_persists_and_an_owned_range_allocates_nothing(page_size: int) -> None:
    def persists(owner: Allocator) -> bool:
        owner.ensure(spans((0, 0, 4)))
        before = snapshot(owner)
        for start, end in ((0, 4), (2, 3), (4, 4), (0, 1)):
            owner.ensure(spans((0, start, end)))
            if snapshot(owner) != before:
                return False
        slots = swa_slots(owner, 0, 4)
        owner.ensure(spans((0, 4, 6)))
        return swa_slots(owner, 0, 4) == slots

    assert persists(fresh(page_size=page_size))
    assert fails(persists, fresh(swa_pages=99, page_size=page_size, make=saboteurs.AllocatesAgain))


@paged
def test_a_page_is_taken_once_and_its_rest_is_reserved(page_size: int) -> None:
    owner = fresh(page_size=page_size)
    for end in range(1, 3 * page_size + 1):
        owner.ensure(spans((0, end - 1, end)))
        pages = -(-end // page_size)
        counts = (8 * page_size - pages * page_size, end, 0, pages * page_size - end)
        assert check_books(owner) == {"full": counts, "swa": counts}
        assert owner.tables[0].pages.tolist() == list(range(1, pages + 1))


def test_a_gap_is_refused_before_anything_changes() -> None:
    def refuses(owner: Allocator) -> bool:
        owner.ensure(spans((0, 0, 2)))
        before = snapshot(owner)
        for gapped in ((0, 3, 4), (1, 1, 2)):
            for step in (spans(gapped), spans((7, 0, 2), gapped)):
                with pytest.raises(PositionGapError, match="begins a call at position"):
                    owner.check(step)
                with pytest.raises(PositionGapError):
                    owner.ensure(step)
        return snapshot(owner) == before

    assert refuses(fresh())
    with pytest.raises(pytest.fail.Exception):
        refuses(fresh(make=saboteurs.IgnoresGaps))
    with pytest.raises(PositionGapError) as caught:
        fresh().ensure(spans((3, 2, 4)))
    assert caught.value.message == (
        "session 3 begins a call at position 2, but only positions below 0 own slots"
    )


@paged
def test_a_session_that_uses_every_position_of_both_pools_fits(page_size: int) -> None:
    owner = fresh(page_size=page_size)
    owner.ensure(spans((0, 0, 8 * page_size)))
    every = list(range(page_size, 9 * page_size))
    assert sorted(swa_slots(owner, 0, 8 * page_size)) == every
    assert sorted(owner.full_slots(0, 8 * page_size).tolist()) == every
    assert owner.swa is not None
    assert owner.swa.num_free == owner.full.num_free == 0
    with pytest.raises(CapacityError):
        owner.ensure(spans((0, 8 * page_size, 8 * page_size + 1)))


def test_a_model_without_sliding_layers_has_no_swa_slots() -> None:
    owner = fresh(swa_pages=None, page_size=4)
    owner.ensure(spans((0, 0, 9), (1, 0, 3)))
    owner.evict(0, 9)
    assert (owner.swa, owner.window_left, owner.mapping.numel()) == (None, None, 0)
    assert check_books(owner) == {"full": (16, 12, 0, 4)}
    owner.finish(0, keep=True)
    owner.reuse(2, 0, 8)  # nothing was evicted, whatever was asked for
    owner.finish(1, keep=False)
    assert check_books(owner) == {"full": (24, 8, 0, 0)}
    owner.reset()
    assert check_books(owner) == {"full": (32, 0, 0, 0)}


# Several sessions


@paged
def test_sessions_of_one_step_never_share_a_page(page_size: int) -> None:
    def shares_nothing(owner: Allocator) -> bool:
        owner.ensure(spans((0, 0, 3), (1, 0, 1), (2, 0, 5)))
        owner.ensure(spans((2, 5, 6), (0, 3, 7)))
        tables = [table.pages.tolist() for table in owner.tables.values()]
        pages = [page for table in tables for page in table]
        slots = [slot for s, end in ((0, 7), (1, 1), (2, 6)) for slot in swa_slots(owner, s, end)]
        return len(set(pages)) == len(pages) and len(set(slots)) == 14 and balanced(owner)

    assert shares_nothing(fresh(16, swa_pages=16, page_size=page_size))
    broken = fresh(16, swa_pages=16, page_size=page_size, make=saboteurs.SharesAPage)
    assert fails(shares_nothing, broken)


def test_pages_go_to_the_spans_of_a_step_in_their_order() -> None:
    owner = fresh(page_size=4)
    owner.ensure(spans((5, 0, 5), (2, 0, 1)))
    owner.ensure(spans((2, 1, 6), (5, 5, 8), (9, 0, 1)))
    assert {s: table.pages.tolist() for s, table in owner.tables.items()} == {
        5: [1, 2],
        2: [3, 4],
        9: [5],
    }


@paged
@pytest.mark.parametrize(("pages", "swa_pages", "pool"), [(4, 9, "full"), (9, 4, "SWA")])
def test_a_step_is_refused_as_a_whole_when_either_pool_is_short(
    page_size: int, pages: int, swa_pages: int, pool: str
) -> None:
    def all_or_nothing(owner: Allocator) -> bool:
        owner.ensure(spans((0, 0, 2 * page_size)))
        before = snapshot(owner)
        fits, does_not = (1, 0, 2 * page_size), (2, 0, 1)
        for step in (spans(fits, does_not), spans(does_not, fits), spans(fits, (0, 0, 3 * size))):
            with pytest.raises(CapacityError, match=f"the {pool} pool needs {3 * size} more slots"):
                owner.ensure(step)
            if snapshot(owner) != before:
                return False
        owner.ensure(spans(fits))  # what fits is still there
        return balanced(owner)

    size = page_size
    assert all_or_nothing(fresh(pages, swa_pages=swa_pages, page_size=size))
    kinds = [saboteurs.HalfAllocates]
    if pool == "SWA":
        kinds.append(saboteurs.LooksAtTheFullPoolOnly)
    for kind in kinds:
        broken = fresh(pages, swa_pages=swa_pages, page_size=size, make=kind)
        with pytest.raises((AssertionError, CapacityError, pytest.fail.Exception)):
            assert all_or_nothing(broken)


@pytest.mark.parametrize("already", range(5))
def test_exhaustion_says_what_is_wanted_and_what_there_is(already: int) -> None:
    owner = fresh(swa_pages=4)
    owner.ensure(spans((0, 0, already)))
    before = snapshot(owner)
    with pytest.raises(CapacityError) as caught:
        owner.ensure(spans((0, already, 5)))
    assert caught.value.message == (
        f"the SWA pool needs {5 - already} more slots and has {4 - already} free or evictable of 4"
    )
    assert caught.value.hint is not None
    assert snapshot(owner) == before
    owner.ensure(spans((0, already, 4)))
    assert swa_slots(owner, 0, 4) == [1, 2, 3, 4]


def test_ignored_exhaustion_is_seen() -> None:
    owner = faulty("ignore-exhaustion", fresh(swa_pages=4))
    owner.ensure(spans((0, 0, 6)))
    assert swa_slots(owner, 0, 6) == [1, 2, 3, 4, 0, 0]


# Reset


@pytest.mark.parametrize("resets", [1, 2])
def test_after_reset_nothing_is_live_and_the_free_lists_are_whole(resets: int) -> None:
    def is_empty_after(owner: Allocator, resets: int = resets) -> bool:
        untouched = snapshot(owner)
        owner.ensure(spans((0, 0, 5), (1, 0, 6)))
        owner.evict(1, 5)
        owner.finish(0, keep=True)
        for _ in range(resets):
            owner.reset()
        return snapshot(owner) == untouched

    size = {"pages": 16, "swa_pages": 16, "page_size": 4}
    assert is_empty_after(fresh(**size))
    assert not is_empty_after(fresh(**size), 0)
    for name in ("reset-zeroes-free-list", "stale-mapping-survives-reset", "skip-reset"):
        assert fails(is_empty_after, faulty(name, fresh(**size)))
    for kind in (saboteurs.LeaksOnReset, saboteurs.SkipsReset, saboteurs.HandsOutTheSentinel):
        assert fails(is_empty_after, fresh(**size, make=kind))


def test_the_next_session_gets_real_slots_again() -> None:
    def second_session(owner: Allocator) -> list[int]:
        owner.ensure(spans((0, 0, 5)))
        owner.reset()
        owner.ensure(spans((1, 0, 3)))
        return swa_slots(owner, 1, 3)

    assert second_session(fresh()) == [1, 2, 3]
    assert second_session(faulty("reset-zeroes-free-list", fresh())) == [0, 0, 0]


# Order of the runtime's calls


def test_slots_exist_before_the_metadata_is_built() -> None:
    """The batch translates the whole prefix, so allocation has to come first."""
    spec = KVGroupSpec(
        group=KVGroup.SLIDING, layer_ids=(0,), num_kv_heads=1, head_dim=4, sliding_window=4
    )
    step = Step(index=0, spans=spans((0, 0, 3)))

    class Positions:
        def positions(self, span: Span) -> torch.Tensor:
            return torch.arange(span.start, span.end)

    def translated(wrap: Callable[[Allocator], Allocator]) -> list[int]:
        cache = HybridKVCache(
            (spec,),
            capacity=8,
            swa_capacity=8,
            page_size=1,
            dtype=torch.float32,
            device=torch.device("cpu"),
        )
        owner = wrap(cache.lifecycle)
        owner.ensure(step.spans)
        batch = build_batch(step, cache, owner, Positions(), together=False)
        slots = batch.blocks[0].spans[0].swa_slots
        assert slots is not None
        return slots.tolist()

    assert translated(lambda owner: owner) == [1, 2, 3]
    assert translated(lambda owner: faulty("allocate-after-metadata", owner)) == [0, 0, 0]
