"""Defects of prefix reuse."""

from swarepro.faults.base import Effect, register
from swarepro.kvcache import SENTINEL_SLOT, SessionTable, slots_of
from swarepro.runtime.wrappers import AllocatorWrapper, on_allocator


class ReuseWithHole(AllocatorWrapper):
    """A prefix is taken over although rows of its window were evicted."""

    def check_reuse(self, session: int, of: int, rows: int) -> None:
        """Refuse nothing."""

    def reuse(self, session: int, of: int, rows: int) -> None:
        """Take over without looking for tombstones, and free the rest."""
        table = self.tables.pop(of)
        pages = rows // self.page_size
        rest = table.pages[max(pages, table.evicted // self.page_size) :]
        if self.swa is not None:
            self.swa.free(self.mapping[rest * self.page_size] // self.page_size)
        self.mapping[slots_of(rest, self.page_size)] = SENTINEL_SLOT
        self.full.free(table.pages[pages:])
        self.tables[session] = SessionTable(
            pages=table.pages[:pages], allocated=rows, evicted=min(table.evicted, rows)
        )


class RingPrefixReuse(AllocatorWrapper):
    """The window's rows lie in a ring, and are taken over as if they lay in the order of positions.

    They are off by one page; all else is right.
    """

    def reuse(self, session: int, of: int, rows: int) -> None:
        """Turn the window of the prefix by a page."""
        super().reuse(session, of, rows)
        if self.window_left is None:
            return
        first = max(0, rows - self.window_left) // self.page_size * self.page_size
        window = self.owned(session)[max(first, self.tables[session].evicted) : rows]
        self.mapping[window] = self.mapping[window].roll(self.page_size)


register(
    "reuse-ignores-tombstones",
    "D4",
    "a prefix is reused although rows of its window were evicted: they are read from slot 0",
    part="allocator",
    effect=Effect.DIVERGES,
    wrap=on_allocator(ReuseWithHole),
)
register(
    "ring-prefix-reuse",
    "D1",
    "a reused window is read from a ring as if it lay in order: each row is another position's",
    part="allocator",
    effect=Effect.DIVERGES,
    wrap=on_allocator(RingPrefixReuse),
)
