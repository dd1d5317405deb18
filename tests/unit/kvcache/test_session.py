"""The lifecycle of SWA slots: each property with a sabotage that breaks it and has to be caught.

A property is a function of an allocation; it is asserted for the real one and must fail for the
saboteur beside it.
"""

from collections.abc import Callable

import pytest
import torch

from swarepro.errors import CapacityError, PositionGapError
from swarepro.faults import FAULTS
from swarepro.kvcache import HybridKVCache, KVGroup, KVGroupSpec, SwaSession
from swarepro.plan import Phase, Span, Step
from swarepro.runtime.batch import build_batch
from swarepro.runtime.parts import Allocator, StageParts

CAPACITY = 8


def fresh(swa_capacity: int = CAPACITY, capacity: int = CAPACITY) -> SwaSession:
    return SwaSession(full_slots=torch.arange(1, capacity + 1), swa_capacity=swa_capacity)


def faulty(name: str, inner: Allocator) -> Allocator:
    parts = StageParts(allocator=inner, attention=None, store=None, ops=None, tap=None)
    wrapped = FAULTS.get(name).wrap(parts).allocator
    assert wrapped is not None
    return wrapped


def snapshot(owner: Allocator):
    return (
        owner.mapping.tolist(),
        owner.allocator.free_list.tolist(),
        owner.allocator.num_live,
        owner.allocated,
    )


def slots_of(owner: Allocator, end: int) -> list[int]:
    return owner.translate(owner.full_slots[:end]).tolist()


def owns_distinct_real_slots(owner: Allocator) -> bool:
    owner.ensure(0, 3)
    owner.ensure(3, 2)
    slots = slots_of(owner, 5)
    return 0 not in slots and len(set(slots)) == 5


def test_every_position_owns_a_distinct_slot_that_is_not_the_sentinel():
    assert owns_distinct_real_slots(fresh())
    assert not owns_distinct_real_slots(faulty("skip-swa-allocation", fresh()))
    assert not owns_distinct_real_slots(faulty("swa-rows-alias-slot-0", fresh()))


def test_the_mapping_persists_and_an_owned_range_allocates_nothing():
    def persists(owner: Allocator) -> bool:
        owner.ensure(0, 4)
        before, live = slots_of(owner, 4), owner.allocator.num_live
        owner.ensure(0, 4)
        owner.ensure(2, 1)
        same = slots_of(owner, 4) == before and owner.allocator.num_live == live
        owner.ensure(4, 2)
        return same and slots_of(owner, 4) == before

    class AllocatesAgain(SwaSession):
        def ensure(self, start: int, count: int) -> None:
            self.mapping[self.full_slots[start : start + count]] = self.allocator.allocate(count)
            self.allocated = max(self.allocated, start + count)

    assert persists(fresh())
    assert not persists(
        AllocatesAgain(full_slots=torch.arange(1, CAPACITY + 1), swa_capacity=4 * CAPACITY)
    )


def test_a_gap_is_refused_before_anything_changes():
    owner = fresh()
    owner.ensure(0, 2)
    before = snapshot(owner)
    with pytest.raises(PositionGapError, match="position 3, but only positions below 2"):
        owner.ensure(3, 1)
    assert snapshot(owner) == before


@pytest.mark.parametrize("already", range(5))
def test_exhaustion_leaves_frontier_mapping_and_free_list_as_they_were(already):
    owner = fresh(swa_capacity=4)
    owner.ensure(0, already)
    before = snapshot(owner)
    with pytest.raises(
        CapacityError, match=f"needs {5 - already} more slots and has {4 - already}"
    ):
        owner.ensure(already, 5 - already)
    assert snapshot(owner) == before
    owner.ensure(already, 4 - already)  # what fits is still there
    assert sorted(slots_of(owner, 4)) == [1, 2, 3, 4]


def test_ignored_exhaustion_is_seen():
    owner = faulty("ignore-exhaustion", fresh(swa_capacity=4))
    owner.ensure(0, 6)
    assert slots_of(owner, 6) == [1, 2, 3, 4, 0, 0]


def test_a_session_that_uses_every_position_fits():
    owner = fresh()
    owner.ensure(0, CAPACITY)
    assert sorted(slots_of(owner, CAPACITY)) == list(range(1, CAPACITY + 1))
    assert owner.allocator.num_free == 0


def test_slots_come_in_the_same_order_whatever_the_chunking():
    def mapping_after(cuts: list[int]) -> list[int]:
        owner, start = fresh(70, 70), 0
        for size in cuts:
            owner.ensure(start, size)
            start += size
        return owner.mapping.tolist()

    assert mapping_after([64, 3]) == mapping_after([67]) == mapping_after([1] * 67)
    assert mapping_after([64, 2]) != mapping_after([67])


def is_empty_after(owner: Allocator, resets: int) -> bool:
    owner.ensure(0, 5)
    for _ in range(resets):
        owner.reset()
    nothing_live = owner.allocator.num_live == 0 and owner.allocated == 0
    unmapped = not owner.mapping.any()
    full_list = sorted(owner.allocator.free_list.tolist()) == list(range(1, CAPACITY + 1))
    return nothing_live and unmapped and full_list


@pytest.mark.parametrize("resets", [1, 2])
def test_after_reset_nothing_is_live_and_the_free_list_is_whole(resets):
    assert is_empty_after(fresh(), resets)
    assert not is_empty_after(faulty("reset-zeroes-free-list", fresh()), resets)
    assert not is_empty_after(faulty("stale-mapping-survives-reset", fresh()), resets)
    assert not is_empty_after(fresh(), 0)


def test_the_next_session_gets_real_slots_again():
    def second_session(owner: Allocator) -> list[int]:
        owner.ensure(0, 5)
        owner.reset()
        owner.ensure(0, 3)
        return slots_of(owner, 3)

    assert second_session(fresh()) == [1, 2, 3]
    assert second_session(faulty("reset-zeroes-free-list", fresh())) == [0, 0, 0]


def test_slots_exist_before_the_metadata_is_built():
    """The batch translates the whole prefix, so allocation has to come first."""
    spec = KVGroupSpec(
        group=KVGroup.SLIDING, layer_ids=(0,), num_kv_heads=1, head_dim=4, sliding_window=4
    )
    step = Step(index=0, phase=Phase.PREFILL, spans=(Span(session=0, start=0, end=3),))

    def translated(wrap: Callable[[Allocator], Allocator]) -> list[int]:
        cache = HybridKVCache(
            (spec,),
            capacity=CAPACITY,
            swa_capacity=CAPACITY,
            dtype=torch.float32,
            device=torch.device("cpu"),
        )
        assert cache.session is not None
        owner = wrap(cache.session)
        owner.ensure(0, 3)
        batch = build_batch(step, cache, owner)
        assert batch.swa_slots is not None
        return batch.swa_slots.tolist()

    assert translated(lambda owner: owner) == [1, 2, 3]
    assert translated(lambda owner: faulty("allocate-after-metadata", owner)) == [0, 0, 0]


def test_a_stage_without_sliding_layers_has_no_mapping():
    spec = KVGroupSpec(
        group=KVGroup.FULL, layer_ids=(5,), num_kv_heads=1, head_dim=4, sliding_window=None
    )
    cache = HybridKVCache(
        (spec,), capacity=4, swa_capacity=4, dtype=torch.float32, device=torch.device("cpu")
    )
    assert cache.session is None
    step = Step(index=0, phase=Phase.PREFILL, spans=(Span(session=0, start=0, end=3),))
    batch = build_batch(step, cache, None)
    assert batch.swa_slots is None
    assert set(batch.groups) == {KVGroup.FULL}


def test_a_lifecycle_gated_on_a_case_is_caught():
    """The control for "no branch on a case": an owner that serves only some sessions."""

    class OnlyShortCalls(SwaSession):
        def ensure(self, start: int, count: int) -> None:
            if count != 3:
                super().ensure(start, count)

    gated = OnlyShortCalls(full_slots=torch.arange(1, CAPACITY + 1), swa_capacity=CAPACITY)
    with pytest.raises((AssertionError, PositionGapError)):
        assert owns_distinct_real_slots(gated)
