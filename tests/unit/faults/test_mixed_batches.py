"""Faults do to every span of a batch what they say, and to nothing else."""

from dataclasses import fields

import pytest
import torch

from swarepro.faults import FAULTS
from swarepro.kvcache import KVGroup
from swarepro.plan import Phase, Span
from swarepro.runtime.parts import StageParts, StoreContext
from swarepro.runtime.wrappers import AllocatorWrapper
from tests.unit.kvcache.owners import balanced, faulty, fresh, snapshot, spans, swa_slots
from tests.unit.runtime.scripted import (
    Pools,
    batch,
    decode,
    differing,
    prefill,
    prompt,
    run_plan,
    script_plan,
)

PROMPTS = (prompt(16, 1), prompt(16, 2), prompt(12, 3))
MIXED = (
    batch(prefill(2, 12)),
    batch(decode(2), prefill(0, 12), prefill(1, 12)),
    batch(decode(2), prefill(0, 4), prefill(1, 4)),
    batch(decode(0), decode(1), decode(2)),
)
PAGES = [1, 3, 4, 64]
paged = pytest.mark.parametrize("page_size", PAGES)


@pytest.mark.parametrize(
    "name", ["allocate-after-metadata", "copy-not-waited-for", "shift-with-global-base"]
)
def test_every_session_of_a_mixed_batch_is_harmed(name):
    plan = script_plan(MIXED, PROMPTS, Pools(page_size=4))
    assert sorted(differing(plan, run_plan(plan, faults=(name,)))) == [0, 1, 2]


@paged
def test_every_translation_of_a_step_is_made_before_any_slot_is_allocated(page_size):
    owner = faulty("allocate-after-metadata", fresh(12, swa_pages=12, page_size=page_size))
    batch = spans((0, 0, 3), (1, 0, page_size), (2, 0, 2))
    owner.ensure(batch)
    for span in batch:
        assert swa_slots(owner, span.session, span.end) == [0] * span.end
    for span in batch:  # and then all have theirs
        assert 0 not in swa_slots(owner, span.session, span.end)
    assert balanced(owner)


@paged
@pytest.mark.parametrize("kept", [False, True], ids=["finished", "taken over"])
def test_sessions_without_swa_slots_free_none(page_size, kept):
    owner = faulty("skip-swa-allocation", fresh(6, swa_pages=6, page_size=page_size))
    for session in range(0, 8, 2):
        owner.ensure(spans((session, 0, 2 * page_size), (session + 1, 0, 1)))
        owner.evict(session, 2 * page_size)
        owner.finish(session + 1, keep=False)
        owner.finish(session, keep=kept)
        if kept:
            owner.reuse(session + 100, session, page_size)
            owner.finish(session + 100, keep=True)
    assert sorted(owner.swa.free_list.tolist()) == [1, 2, 3, 4, 5, 6]
    assert not owner.mapping.any()


@paged
def test_what_was_short_of_slots_frees_those_that_it_had(page_size):
    owner = faulty("ignore-exhaustion", fresh(8, swa_pages=3, page_size=page_size))
    for first in (0, 2):
        owner.ensure(spans((first, 0, 2 * page_size), (first + 1, 0, 2 * page_size)))
        assert swa_slots(owner, first + 1, 2 * page_size)[page_size:] == list(
            range(page_size)
        )  # page 0
        for session in (first, first + 1):
            owner.finish(session, keep=False)
        assert sorted(owner.swa.free_list.tolist()) == [1, 2, 3]


@paged
def test_a_ring_is_of_whole_pages_and_is_freed_once(page_size):
    owner = faulty(
        "swa-ring-wraps-early", fresh(60, swa_pages=60, page_size=page_size, window_left=3)
    )
    ring = -(-8 // page_size) * page_size
    end = ring + 2 * page_size
    for session in range(3):
        owner.ensure(spans((session, 0, ring)))
        owner.ensure(spans((session, ring, end)))
        slots = swa_slots(owner, session, end)
        assert slots[ring:] == (slots[:ring] * 3)[: 2 * page_size]
        assert len(set(slots)) == ring
        owner.evict(session, end)
        owner.finish(session, keep=False)
        assert sorted(owner.swa.free_list.tolist()) == list(range(1, 61))


@pytest.mark.parametrize("name", ["tombstone-keeps-mapping", "free-unmapped-slots"])
def test_a_kept_session_keeps_its_tombstones(name):
    owner = faulty(name, fresh(page_size=1))
    owner.ensure(spans((0, 0, 8)))
    owner.evict(0, 6)
    owner.finish(0, keep=True)
    assert owner.tables[0].evicted == 5


@pytest.mark.parametrize("page_size", [3, 4, 64])
@pytest.mark.parametrize("part", ["beyond", "without its first", "without its last", "turned"])
def test_pages_are_given_back_whole(page_size, part):
    owner = AllocatorWrapper(fresh(page_size=page_size))
    new = owner.ensured(spans((0, 0, 2 * page_size)))
    wrong = {
        "beyond": torch.cat([new, new[:1]]),
        "without its first": new[1:],
        "without its last": new[:-1],
        "turned": new.flip(0),
    }[part]
    before = snapshot(owner)
    with pytest.raises(ValueError, match=f"are not whole pages of {page_size}"):
        owner.give_back(wrong, torch.zeros_like(wrong))
    assert snapshot(owner) == before
    free = owner.swa.free_list.tolist()
    owner.give_back(new, torch.zeros_like(new))
    assert owner.swa.free_list.tolist() == [1, 2, *free]


def store(name: str):
    class Quiet:
        def store(self, *arguments):
            pass

    rest = {field.name: None for field in fields(StageParts)} | {"store": Quiet()}
    parts = StageParts(**rest)
    return FAULTS.get(name).wrap(parts).store


def stored(faulted, pool: torch.Tensor, slots: list[int], *batch: Span) -> list[int]:
    """Let a fault do what comes after a store; return the slots whose keys it changed."""
    before = pool.clone()
    context = StoreContext(step=0, layer=0, group=KVGroup.SLIDING, pool_layer=0, spans=batch)
    rows = torch.zeros(len(slots), 1, 8)
    faulted.store(rows, rows, pool, pool.clone(), torch.tensor(slots), context)
    return (pool != before).flatten(1).any(dim=1).nonzero().flatten().tolist()


def drawn() -> torch.Tensor:
    return torch.sin(torch.arange(20 * 8.0)).view(20, 1, 8)


def prefilled(session: int, rows: int) -> Span:
    return Span(session=session, start=0, end=rows)


def decoded(session: int, position: int) -> Span:
    return Span(session=session, start=position, end=position + 1, phase=Phase.DECODE)


def test_the_last_row_of_every_chunk_does_not_land():
    faulted, pool = store("copy-not-waited-for"), drawn()
    spans = decoded(7, 5), prefilled(0, 3), prefilled(1, 1), prefilled(2, 2)
    assert stored(faulted, pool, [1, 4, 5, 6, 9, 11, 12], *spans) == [6, 12]
    assert torch.equal(pool[6], pool[5])
    assert torch.equal(pool[12], pool[11])


def test_every_session_is_shifted_when_it_decodes_and_once():
    faulted, pool = store("shift-with-global-base"), drawn()
    assert stored(faulted, pool, [1, 2, 3, 4, 5], prefilled(0, 2), prefilled(1, 3)) == []
    assert stored(faulted, pool, [6, 7], decoded(1, 3), prefilled(2, 1)) == [3, 4, 5]
    assert stored(faulted, pool, [8, 9, 10], *(decoded(s, 3) for s in range(3))) == [1, 2, 7]
    assert stored(faulted, pool, [11, 12], decoded(0, 4), decoded(1, 4)) == []


def test_after_a_reset_a_session_is_shifted_where_it_lies_then():
    faulted, pool = store("shift-with-global-base"), drawn()
    assert stored(faulted, pool, [1, 2], prefilled(0, 2)) == []
    assert stored(faulted, pool, [15, 16], prefilled(0, 2)) == []
    assert stored(faulted, pool, [17], decoded(0, 2)) == [15, 16]
