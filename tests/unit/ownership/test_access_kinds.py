"""What a store writes and a gather reads is named by kind, with both owners, and not otherwise."""

from dataclasses import replace

import pytest
import torch

from swarepro.kvcache import KVGroup
from swarepro.ownership import VIOLATION_KINDS, Owner
from swarepro.plan import Phase
from tests.unit.ownership.defects import AliasesSentinel
from tests.unit.ownership.stage import (
    WINDOW_LEFT,
    Passing,
    SmallStage,
    on_allocator,
    on_store,
    row_digests,
)
from tests.unit.ownership.test_allocator_kinds import DEFECTS

FULL, SLIDING = KVGroup.FULL, KVGroup.SLIDING


def prefilled(**pools) -> SmallStage:
    stage = SmallStage(**pools)
    stage.run((0, 0, 10))
    return stage


def decode(stage: SmallStage) -> None:
    start = stage.parts.allocator.tables[0].allocated
    stage.run((0, start, start + 1), phase=Phase.DECODE)


def read(stage: SmallStage, **changes) -> None:
    """Decode a token whose gather uses other slots of the sliding layers; its store does not."""
    attend = stage.parts.attention.attend

    class Reads(Passing):
        def attend(self, call):
            return attend(replace(call, slots=changes["slots"](call.slots.clone(), call.group)))

    stage.parts = replace(stage.parts, attention=Reads(stage.parts.attention))
    decode(stage)


def sliding(change):
    """Apply ``change`` to the slots of sliding layers alone."""
    return lambda slots, group: change(slots) if group is SLIDING else slots


def first_entry(value: int):
    def change(slots: torch.Tensor) -> torch.Tensor:
        slots[0] = value
        return slots

    return sliding(change)


def test_a_read_of_the_sentinel():
    stage = prefilled()
    read(stage, slots=first_entry(0))
    first = stage.first
    assert (first.kind, first.positions, first.slots) == ("sentinel-read", (3,), (0,))
    assert (first.step, first.layer, first.group) == (1, 0, SLIDING)
    assert (first.owner, first.user) == (None, Owner(session=0, position=3))
    assert first.message == (
        "session 0 position 3 is read from SWA slot 0, the sentinel's, where nobody's row lies"
    )


def test_the_rest_of_the_reserved_page_is_the_sentinel_too():
    stage = prefilled(page_size=4)
    read(stage, slots=first_entry(2))
    assert (stage.first.kind, stage.first.slots) == ("sentinel-read", (2,))


def test_what_is_kept_for_the_layers_of_a_step_does_not_grow():
    stage = prefilled()
    for _ in range(12):
        decode(stage)
    assert len(stage.parts.attention._gathers._rows) == 2


def test_a_read_of_the_slots_outside_the_pool():
    stage = prefilled()
    read(stage, slots=first_entry(5000))
    first = stage.first
    assert (first.kind, first.positions, first.slots) == ("index-out-of-range", (3,), (5000,))
    assert "whose last slot is 32" in first.message


def test_a_read_of_another_position():
    stage = prefilled()
    read(stage, slots=first_entry(6))
    first = stage.first
    assert (first.kind, first.positions, first.slots) == ("wrong-position-read", (3,), (6,))
    assert first.owner == Owner(session=0, position=5)
    assert first.message == (
        "session 0 position 3 is read from SWA slot 6, where another position's row lies:"
        " session 0 position 5 owns it"
    )


def test_a_read_of_another_session():
    stage = prefilled()
    stage.run((1, 0, 3))
    read(stage, slots=first_entry(12))
    assert stage.first.kind == "wrong-position-read"
    assert stage.first.owner == Owner(session=1, position=1)


def test_a_read_of_a_slot_that_the_position_owned_before():
    """Session 0 is put back to what it had, after session 1 got one of its slots."""

    class Remaps(Passing):
        def ensure(self, spans):
            if spans[0].session == 1:
                full = int(self.tables[0].pages[5])
                slot = self.mapping[full].clone()
                self.swa.free_list = torch.cat([slot[None], self.swa.free_list])
            self.inner.ensure(spans)

    stage = SmallStage(on_allocator(Remaps))
    stage.run((0, 0, 10))
    stage.run((1, 0, 1))
    assert stage.first.kind == "alloc-over-live-mapping"
    decode(stage)
    found = {violation.kind: violation for violation in stage.log.violations}
    stale = found["stale-generation-read"]
    assert stale.owner == Owner(session=1, position=0)
    assert stale.user == Owner(session=0, position=5)
    assert stale.message.endswith(
        ": session 1 position 0 owns it, in generation 2, and what lies there was written at step 1"
    )


def test_a_read_of_a_free_slot():
    stage = prefilled()
    read(stage, slots=first_entry(30))
    assert (stage.first.kind, stage.first.slots) == ("stale-generation-read", (30,))
    assert stage.first.message.endswith("SWA slot 30, which nobody has owned in this run")


@pytest.mark.parametrize("slot", [0, 3])
def test_a_read_of_an_evicted_position(slot):
    stage = prefilled()
    stage.parts.allocator.evict(0, 3)  # positions 0 and 1: a margin of one page is left
    stage.parts.allocator._inner.evict(0, 5)  # ... and behind the shadow's back up to 3
    stage.parts.allocator.evict(0, 5)
    assert stage.log.violations == ()
    read(stage, slots=first_entry(slot))
    assert (stage.first.kind, stage.first.positions) == ("evicted-read", (3,))
    assert "after an eviction" in stage.first.message


def test_a_read_of_what_nobody_wrote():
    stage = prefilled()
    states = stage.shadow._events.states[SLIDING]
    states.digests[0, 6] = 0
    decode(stage)
    assert (stage.first.kind, stage.first.slots) == ("unwritten-read", (6,))
    assert stage.first.owner == stage.first.user == Owner(session=0, position=5)


def test_a_slot_is_unwritten_again_when_it_gets_a_new_owner():
    stage = SmallStage(capacity=10, swa_capacity=10)
    stage.run((0, 0, 10))
    stage.finish(0)
    stage.run((1, 0, 5))
    stage.finish(1)
    healthy, stage.parts = stage.parts, replace(stage.parts, store=LeavesOut(stage.parts.store))
    stage.run((2, 0, 9))
    stage.parts = healthy
    stage.run((2, 9, 10), phase=Phase.DECODE)
    assert (stage.first.kind, stage.first.layer) == ("unwritten-read", 1)


class LeavesOut(Passing):
    """Layer 1 is not stored, and nobody watches that."""

    def store(self, *args):
        if args[-1].layer != 1:
            self.inner.store(*args)


def test_a_store_that_was_left_out_is_read_as_unwritten():
    stage = SmallStage()
    stage.parts = replace(stage.parts, store=LeavesOut(stage.parts.store))
    stage.run((0, 0, 10))
    assert stage.log.violations == ()
    decode(stage)
    assert (stage.first.kind, stage.first.layer) == ("unwritten-read", 1)
    assert stage.first.positions == (3, 4, 5, 6, 7, 8, 9, 10)


def test_a_row_that_changed_since_it_was_written():
    stage = prefilled()
    stage.cache.pools[SLIDING].kv[1, 7, 1] += 1
    decode(stage)
    first = stage.first
    assert (first.kind, first.layer, first.positions) == ("row-changed-since-write", 1, (6,))
    assert first.owner == Owner(session=0, position=6)


def test_a_row_that_changed_out_of_sight_is_not_reported():
    stage = prefilled()
    stage.cache.pools[SLIDING].kv[:, 1:4] += 1  # positions 0 to 2: beyond the window of position 10
    decode(stage)
    assert stage.log.violations == ()
    stage.cache.pools[FULL].kv[:, 1] += 1  # a full layer sees it
    decode(stage)
    assert (stage.first.kind, stage.first.group) == ("row-changed-since-write", FULL)


def test_own_rows_are_looked_at_only_where_they_are_read_from_the_pool():
    class Tears(Passing):
        def store(self, k, v, k_cache, v_cache, slots, context):
            self.inner.store(k, v, k_cache, v_cache, slots, context)
            k_cache[slots[-1]] += 1

    stage = SmallStage(on_store(Tears))
    stage.run((0, 0, 4))
    assert stage.log.violations == ()
    stage.run((0, 4, 5), phase=Phase.DECODE)
    assert stage.first.positions == (3, 4)
    assert stage.first.kind == "row-changed-since-write"


def test_a_digest_of_zero_is_a_row_that_was_written():
    stage = SmallStage(digests=lambda rows: torch.zeros(rows.shape[0], dtype=torch.int64))
    stage.run((0, 0, 10))
    decode(stage)
    assert stage.log.violations == ()


def test_a_foreign_store_names_both_owners_and_the_victim_finds_its_row_changed():
    stage = SmallStage()
    stage.run((0, 0, 8))
    stage.run((1, 0, 9))
    store = stage.parts.store

    class Shifted(Passing):
        def store(self, k, v, k_cache, v_cache, slots, context):
            if context.group is SLIDING:
                slots = torch.tensor([3, slots[1]])
            store.store(k, v, k_cache, v_cache, slots, context)

    healthy, stage.parts = stage.parts, replace(stage.parts, store=Shifted(store))
    stage.run((1, 9, 11))
    first = stage.first
    assert first.kind == "foreign-store"
    assert first.message == (
        "session 1 position 9 is stored to SWA slot 3, which session 0 position 2 owns"
    )
    assert (first.owner, first.user) == (
        Owner(session=0, position=2),
        Owner(session=1, position=9),
    )
    stage.parts = healthy
    stage.run((0, 8, 9), phase=Phase.DECODE)
    assert "row-changed-since-write" in stage.kinds


def test_a_store_outside_the_pool():
    stage = prefilled()
    store = stage.parts.store

    class Beyond(Passing):
        def store(self, k, v, k_cache, v_cache, slots, context):
            store._stores.check(slots + 30, context)

    stage.parts = replace(stage.parts, store=Beyond(store))
    stage.run((0, 10, 14))
    assert (stage.first.kind, stage.first.layer) == ("index-out-of-range", 0)


def test_rows_of_the_sentinel_are_no_duplicates():
    stage = SmallStage(on_allocator(AliasesSentinel))
    stage.run((0, 0, 12))
    assert stage.kinds == ["sentinel-store"]


@pytest.mark.parametrize("page_size", [1, 4])
def test_the_whole_reserved_page_is_the_sentinel(page_size):
    class ToItsEnd(Passing):
        def translate(self, full_slots):
            return torch.full_like(full_slots, self.page_size - 1)

    stage = SmallStage(on_allocator(ToItsEnd), page_size=page_size)
    stage.run((0, 0, 4))
    assert (stage.first.kind, set(stage.first.slots)) == ("sentinel-store", {page_size - 1})


def test_the_window_is_what_a_query_sees():
    """One entry more than the mask lets a query see may hold anything."""
    stage = prefilled()
    allocator, attention = stage.parts.allocator, stage.parts.attention

    class SeesMore(Passing):
        def attend(self, call):
            if call.group is SLIDING:
                (request,) = call.requests
                more = replace(
                    request,
                    entries=slice(0, request.entries.stop + 1),
                    visible_start=request.visible_start - 1,
                )
                slots = torch.cat([torch.tensor([31]), call.slots])
                call = replace(call, slots=slots, requests=(more,))
            return attention.attend(call)

    stage.parts = replace(stage.parts, attention=SeesMore(attention))
    decode(stage)
    assert stage.log.violations == ()
    assert allocator.window_left == WINDOW_LEFT


def test_every_kind_is_shown_by_some_test():
    here = {
        "sentinel-read",
        "unwritten-read",
        "stale-generation-read",
        "evicted-read",
        "row-changed-since-write",
        "position-gap",
        "layer-table",
    }
    assert {defect.kind for defect in DEFECTS} | here == set(VIOLATION_KINDS)


def test_the_digests_of_the_tests_tell_rows_apart():
    rows = torch.arange(32.0).view(4, 2, 1, 4)
    assert len(set(row_digests(rows).tolist())) == 4
