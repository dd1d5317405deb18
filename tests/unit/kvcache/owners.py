"""What the tests of the lifecycle share: owners, spans, and their books read from the outside."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from swarepro.faults import FAULTS
from swarepro.kvcache import SENTINEL_SLOT, PageAllocator, SlotLifecycle
from swarepro.plan import Span
from swarepro.runtime.parts import Allocator, StageParts


def fresh(
    pages: int = 8,
    *,
    swa_pages: int | None = 8,
    page_size: int = 1,
    window_left: int = 3,
    make: type[SlotLifecycle] = SlotLifecycle,
) -> SlotLifecycle:
    """An owner of ``pages`` full pages and ``swa_pages`` SWA pages; None = no sliding layers."""
    return make(
        capacity=pages * page_size,
        swa_capacity=None if swa_pages is None else swa_pages * page_size,
        page_size=page_size,
        window_left=None if swa_pages is None else window_left,
    )


def faulty(name: str, inner: Allocator) -> Allocator:
    """The owner as the fault ``name`` leaves it."""
    rest: dict[str, Any] = {field.name: None for field in fields(StageParts)}
    parts = StageParts(**(rest | {"allocator": inner}))
    return FAULTS.get(name).wrap(parts).allocator


def spans(*ends: tuple[int, int, int]) -> tuple[Span, ...]:
    """Spans from (session, start, end)."""
    return tuple(Span(session=session, start=start, end=end) for session, start, end in ends)


def swa_slots(owner: Allocator, session: int, end: int) -> list[int]:
    return owner.translate(owner.full_slots(session, end)).tolist()


def snapshot(owner: Allocator) -> tuple[object, ...]:
    """Everything that an owner knows, as plain values that share nothing with it."""
    return (
        [
            (session, table.pages.tolist(), table.allocated, table.evicted, table.kept)
            for session, table in owner.tables.items()
        ],
        owner.mapping.tolist(),
        owner.full.free_list.tolist(),
        None if owner.swa is None else owner.swa.free_list.tolist(),
    )


def expand(pages: Sequence[int], page_size: int) -> list[int]:
    return [page * page_size + row for page in pages for row in range(page_size)]


def check_books(owner: Allocator) -> dict[str, tuple[int, int, int, int]]:
    """Return (free, live, evictable, reserved) slots of each pool; every slot is exactly one.

    Counted slot by slot: what is on a free list, in a table, or reached through the mapping. A page
    in two tables, a slot that two positions share, a leak and a double free all fail.
    """
    size = owner.page_size
    live: dict[str, list[int]] = {"full": [], "swa": []}
    evictable: dict[str, list[int]] = {"full": [], "swa": []}
    reserved: dict[str, list[int]] = {"full": [], "swa": []}
    mapping = owner.mapping.tolist()
    mapped_by_a_table: set[int] = set()
    for table in owner.tables.values():
        for position, full_slot in enumerate(expand(table.pages.tolist(), size)):
            kind = evictable if table.kept else live if position < table.allocated else reserved
            kind["full"].append(full_slot)
            if owner.swa is not None:
                mapped_by_a_table.add(full_slot)
                assert (mapping[full_slot] == SENTINEL_SLOT) == (position < table.evicted)
                if mapping[full_slot] != SENTINEL_SLOT:
                    kind["swa"].append(mapping[full_slot])
    for full_slot, swa_slot in enumerate(mapping):
        assert swa_slot == SENTINEL_SLOT or full_slot in mapped_by_a_table
    counts = {}
    pools: list[tuple[str, PageAllocator | None]] = [("full", owner.full), ("swa", owner.swa)]
    for name, pool in pools:
        if pool is None:
            continue
        free = expand(pool.free_list.tolist(), size)
        assert sorted(free + live[name] + evictable[name] + reserved[name]) == list(
            range(size, pool.capacity + size)
        )
        counts[name] = (len(free), len(live[name]), len(evictable[name]), len(reserved[name]))
    return counts


def balanced(owner: Allocator) -> bool:
    """Whether the books balance."""
    try:
        check_books(owner)
    except (AssertionError, IndexError):
        return False
    return True
