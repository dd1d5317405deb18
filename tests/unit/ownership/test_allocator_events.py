"""What follows from an allocator's events, one by one: owners, frontiers, consequences."""

from dataclasses import replace

import pytest
import torch

from swarepro.errors import CapacityError
from swarepro.kvcache import HybridKVCache, KVGroup
from swarepro.ownership import Owner, OwnershipShadow, ViolationLog
from swarepro.plan import Phase, Span
from tests.unit.ownership.defects import (
    AllocatesLate,
    AllocationLeaks,
    EvictsTooMuch,
    FinishFreesAnother,
    FreesTwice,
    Lenient,
    NoTranslation,
    ReusesTombstones,
    SkipsAllocation,
)
from tests.unit.ownership.scripts import recycle, reuse_with_hole, two_chunks
from tests.unit.ownership.stage import GROUPS, Passing, SmallStage, on_allocator, row_digests

SLIDING = KVGroup.SLIDING


def test_pages_that_were_freed_twice_are_handed_out_to_two_sessions():
    stage = SmallStage(on_allocator(FreesTwice), capacity=16)
    stage.run((0, 0, 6))
    stage.run((1, 0, 4))
    stage.finish(0)
    stage.run((2, 0, 8))  # the rest of the pool, and the first copies of two pages
    stage.run((3, 0, 8))
    found = {violation.kind: violation for violation in stage.log.violations}
    assert stage.first.kind == "double-free"
    assert stage.first.owner == Owner(session=0, position=0)
    clash = found["alloc-over-live-mapping"]
    assert clash.owner is not None and clash.user is not None
    assert (clash.owner.session, clash.user.session) == (2, 3)
    assert "is handed out to session 3" in clash.message


def test_full_slots_that_are_what_the_mapping_was_read_as_an_old_translation():
    stage = SmallStage(on_allocator(NoTranslation), capacity=16, swa_capacity=16, evict=True)
    recycle(stage)
    assert stage.first.kind == "stale-translation"  # nothing tells one from the other


def test_what_is_allocated_late_is_known_when_it_is():
    stage = SmallStage(on_allocator(AllocatesLate))
    allocator = stage.parts.allocator
    allocator.ensure([Span(session=0, start=0, end=4)])
    allocator.translate(allocator.full_slots(0, 4))
    states = stage.shadow._events.states[SLIDING]
    assert states.owner[1:5].tolist() == [0, 1, 2, 3]
    assert stage.log.violations == ()


def test_a_leak_of_an_allocation_is_found_before_the_store():
    stage = SmallStage(on_allocator(AllocationLeaks))
    allocator = stage.parts.allocator
    allocator.ensure([Span(session=0, start=0, end=4)])
    assert stage.log.violations == ()  # it might be mapped late
    allocator.translate(allocator.full_slots(0, 4))
    assert (stage.first.kind, stage.first.slots) == ("mapping-lost", (5,))


def test_a_position_that_was_evicted_too_early_is_read_as_evicted():
    stage = SmallStage(on_allocator(EvictsTooMuch), evict=True)
    two_chunks(stage)
    assert stage.kinds[:2] == ["free-of-live", "evicted-read"]


def test_a_hole_in_a_reused_window_is_read_as_evicted():
    stage = SmallStage(on_allocator(ReusesTombstones), evict=True)
    reuse_with_hole(stage)
    assert stage.kinds == ["window-not-covered", "evicted-read"]


def test_a_live_slot_that_was_freed_is_handed_out_over_its_owner():
    stage = SmallStage(on_allocator(FinishFreesAnother), capacity=32, swa_capacity=20)
    stage.run((0, 0, 12), (1, 0, 5))
    stage.finish(1)
    stage.run((2, 0, 9))
    found = {violation.kind: violation for violation in stage.log.violations}
    assert stage.first.kind == "free-of-live"
    assert found["alloc-over-live-mapping"].owner == Owner(session=0, position=0)


@pytest.mark.parametrize("junk", ["old", "outside"])
def test_translations_that_nobody_uses_may_be_anything(junk):
    """Of evicted positions: what they were, or outside the pool."""

    class Junk(Passing):
        def translate(self, full_slots):
            slots = self.inner.translate(full_slots)
            other = full_slots if junk == "old" else torch.full_like(slots, 9999)
            return torch.where(slots == 0, other, slots)

    stage = SmallStage(on_allocator(Junk), evict=True)
    two_chunks(stage)
    stage.run((0, 21, 22), phase=Phase.DECODE)
    assert stage.log.violations == ()


def test_a_skipped_allocation_is_not_seen_before_the_first_store():
    stage = SmallStage(on_allocator(SkipsAllocation))
    span = Span(session=0, start=0, end=12)
    stage.parts.allocator.ensure([span])
    assert stage.log.violations == ()
    stage.step([span])
    assert stage.first.kind == "sentinel-store"


@pytest.mark.parametrize("method", ["check", "ensure"])
def test_a_call_beyond_the_frontier_is_a_gap(method):
    stage = SmallStage(on_allocator(Lenient))
    getattr(stage.parts.allocator, method)([Span(session=0, start=3, end=5)])
    assert (stage.first.kind, stage.first.positions) == ("position-gap", (0, 1, 2))
    assert stage.first.user == Owner(session=0, position=3)


def test_a_reset_starts_every_session_again():
    stage = SmallStage(on_allocator(Lenient))
    stage.run((0, 0, 12))
    stage.parts.allocator.reset()
    stage.parts.allocator.ensure([Span(session=0, start=5, end=6)])
    assert (stage.first.kind, stage.first.positions) == ("position-gap", (0, 1, 2, 3, 4))


def test_the_end_of_a_reuse_is_the_frontier():
    stage = SmallStage(on_allocator(Lenient))
    stage.run((0, 0, 12))
    stage.finish(0, keep=True)
    stage.reuse(1, 0, 8)
    stage.parts.allocator.ensure([Span(session=1, start=9, end=10)])
    assert (stage.first.kind, stage.first.positions) == ("position-gap", (8,))


def test_computing_rows_again_is_no_gap():
    stage = SmallStage()
    stage.run((0, 0, 12))
    stage.run((0, 0, 12))
    stage.run((0, 8, 14))
    stage.end()
    assert stage.log.violations == ()


def test_computing_first_rows_again_does_not_move_the_frontier_back():
    stage = SmallStage()
    stage.run((0, 0, 12))
    stage.run((0, 0, 4))
    stage.run((0, 12, 14))
    stage.end()
    assert stage.log.violations == ()
    assert stage.shadow._events.sessions.frontier(0) == 14


def test_the_frontier_of_one_session_is_not_anothers():
    stage = SmallStage(on_allocator(Lenient))
    stage.run((0, 0, 12), (1, 0, 3))
    stage.parts.allocator.ensure([Span(session=1, start=5, end=6)])
    assert (stage.first.kind, stage.first.positions) == ("position-gap", (3, 4))


def test_a_refused_call_leaves_the_shadow_as_it_was():
    stage = SmallStage(capacity=16, swa_capacity=16)
    stage.run((0, 0, 12))
    for _ in range(2):
        with pytest.raises(CapacityError):
            stage.parts.allocator.ensure([Span(session=1, start=0, end=8)])
    stage.run((0, 12, 14), (1, 0, 2))
    stage.finish(0)
    stage.run((1, 2, 12))
    stage.end()
    assert stage.log.violations == ()


def test_kept_sessions_that_are_given_up_lose_their_slots_silently():
    stage = SmallStage(capacity=16, swa_capacity=16)
    stage.run((0, 0, 6), (1, 0, 6))
    stage.finish(0, keep=True)
    stage.run((2, 0, 8))
    stage.end()
    assert 0 not in stage.parts.allocator.tables
    assert stage.log.violations == ()


def test_a_running_session_that_is_given_up_is_not():
    class GivesUpRunning(Passing):
        def ensure(self, spans):
            if 0 in self.tables and spans[0].session == 2:
                self.inner.release(0)
            self.inner.ensure(spans)

        def check(self, spans):
            pass

    stage = SmallStage(on_allocator(GivesUpRunning), capacity=16, swa_capacity=16)
    stage.run((0, 0, 6), (1, 0, 6))
    stage.run((2, 0, 8))
    first = stage.first
    assert first.kind in ("free-of-live", "alloc-over-live-mapping")
    assert first.owner is not None and first.owner.session == 0


def test_a_leak_without_an_swa_pool_is_found_at_its_step():
    """No translation comes there: nothing can be mapped late, and the books are settled at once."""

    class TakesOneMore(Passing):
        def ensure(self, spans):
            self.inner.ensure(spans)
            if spans[0].start:
                self.full.allocate(1)

    cache = HybridKVCache(
        GROUPS[1:],
        capacity=16,
        swa_capacity=16,
        page_size=1,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    log = ViolationLog()
    shadow = OwnershipShadow(log, stage=0, pools=cache.pools, row_digests=row_digests)
    parts = replace(SmallStage().parts, allocator=TakesOneMore(cache.lifecycle))
    allocator = shadow.watch(parts).allocator
    for step, (start, end) in enumerate([(0, 4), (4, 6), (6, 8)]):
        log.begin_step(step)
        allocator.ensure([Span(session=0, start=start, end=end)])
        allocator.full_slots(0, end)
    found = log.first
    assert found is not None
    assert (found.kind, found.step, found.group) == ("mapping-lost", 1, KVGroup.FULL)
    assert found.slots == (7,)


@pytest.mark.parametrize("groups", [GROUPS[:1], GROUPS[1:]], ids=["sliding", "full"])
def test_a_stage_may_have_layers_of_one_kind(groups):
    cache = HybridKVCache(
        groups,
        capacity=16,
        swa_capacity=16,
        page_size=2,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    log = ViolationLog()
    shadow = OwnershipShadow(log, stage=0, pools=cache.pools, row_digests=row_digests)
    parts = replace(SmallStage().parts, allocator=cache.lifecycle)
    allocator = shadow.watch(parts).allocator
    allocator.ensure([Span(session=0, start=0, end=9), Span(session=1, start=0, end=3)])
    allocator.evict(1, 0)
    allocator.finish(0, keep=True)
    allocator.reuse(2, 0, 8)
    allocator.evict(2, 6)
    allocator.finish(2, keep=False)
    shadow.end()
    assert log.violations == ()
    allocator.full.free_list = allocator.full.free_list[1:]
    shadow.end()
    assert [violation.kind for violation in log.violations] == ["mapping-lost"]
