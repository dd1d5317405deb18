"""The allocator's books at one moment: free lists, mapping, block tables."""

from dataclasses import dataclass

import torch

from swarepro.kvcache import SENTINEL_SLOT, KVGroup, PageAllocator, slots_of
from swarepro.runtime.parts import Allocator

_NO_SLOT = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntry:
    """One session's block table, as in `swarepro.kvcache.SessionTable`; ``pages`` are int32."""

    pages: torch.Tensor
    allocated: int
    evicted: int
    kept: bool


class Books:
    """A copy of what an allocator has written down; nothing in it is taken to be right.

    Attributes:
        page_size: slots of a page of either pool.
        num_pages: pages that can be handed out, by group.
        free: ``[N]`` int32 by group: the pages on the free list.
        mapping: ``[full slots]`` int32: SWA slot by full slot.
        tables: by session.
    """

    def __init__(self, allocator: Allocator) -> None:
        pools = pools_of(allocator)
        self.page_size = allocator.page_size
        self.num_pages = {group: pool.num_pages for group, pool in pools.items()}
        tables = dict(allocator.tables)
        header = [pool.num_free for pool in pools.values()]
        for session, table in tables.items():
            state = (table.allocated, table.evicted, int(table.kept), table.pages.numel())
            header += [session, *state]
        # One tensor, so that an event that changed nothing is told by one comparison; int32, half
        # the bytes of what the allocator has, and nothing that is no slot becomes one.
        lists = [pool.free_list for pool in pools.values()]
        pages = [table.pages for table in tables.values()]
        everything = torch.cat([torch.tensor(header), allocator.mapping, *lists, *pages])
        self._all = everything.clamp(-1, _NO_SLOT).to(torch.int32)
        rest = self._all[len(header) :]
        self.mapping, rest = rest.tensor_split([allocator.mapping.numel()])
        self.free: dict[KVGroup, torch.Tensor] = {}
        for group, pool in pools.items():
            self.free[group], rest = rest.tensor_split([pool.num_free])
        self.tables: dict[int, TableEntry] = {}
        for session, table in tables.items():
            copied, rest = rest.tensor_split([table.pages.numel()])
            self.tables[session] = TableEntry(
                pages=copied, allocated=table.allocated, evicted=table.evicted, kept=table.kept
            )

    @property
    def num_bytes(self) -> int:
        """Bytes that the copy takes."""
        return self._all.nbytes

    def same_as(self, other: "Books") -> bool:
        """Return whether nothing has changed between the two."""
        return torch.equal(self._all, other._all)

    def slots(self, session: int, group: KVGroup) -> torch.Tensor:
        """Return the slot ``[P * page_size]`` int64 of each position of a session's pages.

        0 where it has none, or none that can be handed out: unmapped, evicted, outside the pool,
        the sentinel's.
        """
        table = self.tables[session]
        full_slots = self._real(slots_of(table.pages, self.page_size), KVGroup.FULL)
        if group is KVGroup.FULL:
            return full_slots
        slots = self._real(self.mapping[full_slots].to(torch.int64), group)
        # Full slot 0 stands for "no full slot" here; whatever the mapping says of it is nobody's.
        slots[full_slots == SENTINEL_SLOT] = SENTINEL_SLOT
        slots[: table.evicted] = SENTINEL_SLOT
        return slots

    def missing_pages(self, session: int, end: int) -> int:
        """Return how many pages a session lacks to own positions ``[0, end)``."""
        table = self.tables.get(session)
        held = 0 if table is None else table.pages.numel()
        return max(0, -(-end // self.page_size) - held)

    def available_pages(self, group: KVGroup) -> int:
        """Return how many pages a call can get: free ones, and those of kept sessions."""
        kept = [session for session, table in self.tables.items() if table.kept]
        held = sum(int((self.slots(session, group) != 0).sum()) for session in kept)
        return self.free[group].numel() + held // self.page_size

    def _real(self, slots: torch.Tensor, group: KVGroup) -> torch.Tensor:
        end = (self.num_pages[group] + 1) * self.page_size
        return torch.where((slots >= self.page_size) & (slots < end), slots, SENTINEL_SLOT)


def pools_of(allocator: Allocator) -> dict[KVGroup, PageAllocator]:
    """Return an allocator's pages by group."""
    pools = {KVGroup.FULL: allocator.full}
    if allocator.swa is not None:
        pools[KVGroup.SLIDING] = allocator.swa
    return pools
