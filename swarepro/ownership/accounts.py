"""How many slots of each pool are free, live, evictable and reserved, by the allocator's books."""

from dataclasses import dataclass

from swarepro.kvcache import KVGroup
from swarepro.ownership.books import Books
from swarepro.runtime.parts import Allocator

SlotRange = tuple[int, int, tuple[int, ...]]
"""A session, the first of consecutive positions, and the slot of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotAccount:
    """The slots of one pool at one moment; in a healthy run the four counts sum to the capacity.

    Attributes:
        group: whose pool.
        capacity: slots that can be handed out.
        free: on the free list, as often as it lists them.
        live: owned by positions of running sessions.
        evictable: of pages that kept sessions hold.
        reserved: the rest of the pages of running sessions.
        positions: positions of running sessions and of kept ones that have to own a slot of this
            pool, whether they do or not: all but evicted ones, in the sliding group.
        owners: consecutive positions that own slots, of running sessions and of kept ones, sessions
            ascending.
    """

    group: KVGroup
    capacity: int
    free: int
    live: int
    evictable: int
    reserved: int
    positions: int
    owners: tuple[SlotRange, ...]

    @property
    def is_exact(self) -> bool:
        """Whether the counts sum to the capacity."""
        return self.free + self.live + self.evictable + self.reserved == self.capacity


def slot_accounts(allocator: Allocator) -> tuple[SlotAccount, ...]:
    """Return the account of each pool of a stage: full, then sliding where it has one."""
    books = Books(allocator)
    return tuple(_account(books, group) for group in books.num_pages)


def _account(books: Books, group: KVGroup) -> SlotAccount:
    live: set[int] = set()
    held: set[int] = set()
    evictable: set[int] = set()
    owners: list[SlotRange] = []
    positions = 0
    for session, table in sorted(books.tables.items()):
        slots: list[int] = books.slots(session, group).tolist()
        owners += _ranges(session, slots[: table.allocated])
        positions += table.allocated
        if group is KVGroup.SLIDING:
            positions -= min(table.evicted, table.allocated)
        if table.kept:
            evictable.update(slots)
        else:
            live.update(slots[: table.allocated])
            held.update(slots)
    sentinel = {0}
    return SlotAccount(
        group=group,
        capacity=books.num_pages[group] * books.page_size,
        free=books.free[group].numel() * books.page_size,
        live=len(live - sentinel),
        evictable=len(evictable - sentinel),
        reserved=len(held - live - sentinel),
        positions=positions,
        owners=tuple(owners),
    )


def _ranges(session: int, slots: list[int]) -> list[SlotRange]:
    ranges: list[SlotRange] = []
    start = 0
    for position in range(len(slots) + 1):
        if position == len(slots) or slots[position] == 0:
            if position > start:
                ranges.append((session, start, tuple(slots[start:position])))
            start = position + 1
    return ranges
