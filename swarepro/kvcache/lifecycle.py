"""Who owns which slot: the lifecycle of all sessions on one stage.

The stage runtime stands where an engine's scheduler would: before a call builds its attention
metadata, the positions that it computes and all before them must own slots, in both pools.
"""

from collections.abc import Sequence

import torch

from swarepro.errors import CapacityError, PositionGapError, ReuseError, SessionError
from swarepro.kvcache.allocator import PageAllocator, num_pages_for, slots_of
from swarepro.kvcache.spec import SENTINEL_SLOT
from swarepro.kvcache.tables import SessionTable
from swarepro.plan import Span


class SlotLifecycle:
    """The slots of every session of one stage.

    A full page and an SWA page are handed out together; the mapping ties their slots. What is
    refused changes nothing: no frontier, no mapping, no free list.

    Attributes:
        page_size: slots of a page of either pool.
        window_left: keys that a query sees to its left in sliding layers; None without them.
        full: the full pool's pages.
        swa: the SWA pool's pages; None without sliding layers.
        mapping: ``full_to_swa_index_mapping``, ``[full slots]`` int64 by full slot; 0 = no live SWA
            slot. Empty without sliding layers.
        tables: the sessions that own slots, in the order in which they began; the kept ones in the
            order in which they were finished.
    """

    def __init__(
        self, *, capacity: int, swa_capacity: int | None, page_size: int, window_left: int | None
    ) -> None:
        self.page_size = page_size
        self.window_left = window_left
        self.full = PageAllocator(capacity // page_size, page_size)
        self.swa: PageAllocator | None = None
        entries = 0
        if swa_capacity is not None:
            self.swa = PageAllocator(swa_capacity // page_size, page_size)
            entries = (self.full.num_pages + 1) * page_size
        self.mapping = torch.full((entries,), SENTINEL_SLOT)
        self.tables: dict[int, SessionTable] = {}

    def full_slots(self, session: int, end: int) -> torch.Tensor:
        """Return the full slots ``[end]`` int64 of positions ``[0, end)`` of a session."""
        return slots_of(self.tables[session].pages, self.page_size)[:end]

    def translate(self, full_slots: torch.Tensor) -> torch.Tensor:
        """Return the SWA slots of ``full_slots [C]`` through the mapping, ``[C]`` int64."""
        return self.mapping[full_slots]

    def check(self, spans: Sequence[Span]) -> None:
        """Raise what `ensure` would raise; change nothing.

        Raises:
            PositionGapError: a span begins beyond its session's frontier.
            CapacityError: too few pages are free or evictable for all spans together.
            SessionError: a session is finished and kept; or a span goes back to positions whose
                SWA slots were evicted, or to queries that see such positions.
        """
        for span in spans:
            table = self.tables.get(span.session, SessionTable())
            if table.kept:
                raise SessionError(
                    f"session {span.session} is finished and kept for reuse; it cannot go on"
                )
            if span.start > table.allocated:
                raise PositionGapError(
                    f"session {span.session} begins a call at position {span.start}, but only"
                    f" positions below {table.allocated} own slots",
                    hint="positions of a session have to be computed in order, without a gap",
                )
            self._check_evicted(span, table)
        count = sum(self._missing(span) for span in spans)
        for name, pool in self._pools():
            free = pool.num_free + self._evictable(pool)
            if count > free:
                raise CapacityError(
                    f"the {name} pool needs {count * self.page_size} more slots and has"
                    f" {free * self.page_size} free or evictable of {pool.capacity}",
                    hint="raise the capacity, shorten the sessions, or finish one",
                )

    def ensure(self, spans: Sequence[Span]) -> None:
        """Make all positions up to each span's end own slots; what is owned stays as it is.

        Kept sessions are given up, the one finished first before the others, where pages are
        wanting. Raises what `check` raises, and then nothing has changed.
        """
        self.check(spans)
        count = sum(self._missing(span) for span in spans)
        kept = [session for session, table in self.tables.items() if table.kept]
        while any(count > pool.num_free for _, pool in self._pools()):
            self.release(kept.pop(0))
        for span in spans:
            table = self.tables.setdefault(span.session, SessionTable())
            self._extend(table, self._missing(span))
            table.allocated = max(table.allocated, span.end)

    def evict(self, session: int, before: int) -> None:
        """Free the SWA pages of a session whose positions all lie a page or more below ``before``.

        ``before`` is the first position that the session's next query can see; beyond the frontier
        there is nothing to free.
        """
        table = self.tables[session]
        before = min(before, table.allocated)
        end = (before - self.page_size) // self.page_size * self.page_size
        if self.swa is None or end <= table.evicted:
            return
        self._free_swa(table, table.evicted, end)
        table.evicted = end

    def finish(self, session: int, *, keep: bool) -> None:
        """End a session: free its slots, or ``keep`` them for reuse until they are needed.

        The unused rest of its last page is freed with it, or stays reserved. A session that owns
        nothing has nothing to end.
        """
        if session not in self.tables:
            return
        if not keep:
            self.release(session)
            return
        table = self.tables.pop(session)
        table.kept = True
        self.tables[session] = table

    def release(self, session: int) -> None:
        """Free every slot of a session and forget it."""
        table = self.tables.pop(session)
        self._free_swa(table, table.evicted, table.pages.numel() * self.page_size)
        self.full.free(table.pages)

    def reusable(self, of: int, rows: int) -> int:
        """Return how many of the first ``rows`` positions of a kept session can be taken over.

        The most that is a whole number of pages and whose window is live: a query at that position
        sees no tombstone. 0 when the session is not kept.
        """
        table = self.tables.get(of)
        if table is None or not table.kept:
            return 0
        rows = min(rows, table.allocated) // self.page_size * self.page_size
        return rows if self._is_covered(table, rows) else 0

    def check_reuse(self, session: int, of: int, rows: int) -> None:
        """Raise what `reuse` would raise; change nothing."""
        table = self.tables.get(of)
        if rows >= 1 and self.reusable(of, rows) == rows and session not in self.tables:
            return
        if session in self.tables:
            why = f"session {session} owns slots already"
        elif table is None or not table.kept:
            why = "it is not kept"
        else:
            why = (
                f"it holds {table.allocated} positions in pages of {self.page_size}, and SWA slots"
                f" from position {table.evicted} on"
            )
        raise ReuseError(
            f"session {session} cannot reuse {rows} rows of session {of}: {why}",
            hint="reuse whole pages whose window is live, or compute the prefix again",
        )

    def reuse(self, session: int, of: int, rows: int) -> None:
        """Let a new session own positions ``[0, rows)`` of a kept one; free the rest of that.

        Raises:
            ReuseError: not a whole number of pages, none, more than there is, or rows of the window
                were evicted.
        """
        self.check_reuse(session, of, rows)
        table = self.tables.pop(of)
        pages = rows // self.page_size
        end = table.pages.numel() * self.page_size
        self._free_swa(table, max(rows, table.evicted), end)
        self.full.free(table.pages[pages:])
        self.tables[session] = SessionTable(
            pages=table.pages[:pages], allocated=rows, evicted=min(table.evicted, rows)
        )

    def reset(self) -> None:
        """Forget every session: no slot is live, no position mapped. Safe to call twice."""
        self.mapping.fill_(SENTINEL_SLOT)
        self.tables.clear()
        for _, pool in self._pools():
            pool.rebuild()

    def _check_evicted(self, span: Span, table: SessionTable) -> None:
        """Refuse to go back behind an eviction; at the frontier, what is seen was left live."""
        goes_back = span.start < table.allocated
        first = max(0, span.start - (self.window_left or 0)) if goes_back else span.start
        if self.swa is None or first >= table.evicted:
            return
        raise SessionError(
            f"session {span.session} goes back to positions {span.start} to {span.end - 1}, which"
            f" use SWA slots from position {first} on; those of positions {first} to"
            f" {min(table.evicted, span.end) - 1} were evicted",
            hint="finish the session and compute it from position 0, or do not evict",
        )

    def _pools(self) -> list[tuple[str, PageAllocator]]:
        pools = [("full", self.full)]
        return pools if self.swa is None else [*pools, ("SWA", self.swa)]

    def _missing(self, span: Span) -> int:
        """Return how many pages a span's session lacks."""
        table = self.tables.get(span.session, SessionTable())
        return max(0, num_pages_for(span.end, self.page_size) - table.pages.numel())

    def _evictable(self, pool: PageAllocator) -> int:
        """Return how many pages of a pool kept sessions hold."""
        kept = [table for table in self.tables.values() if table.kept]
        evicted = 0 if pool is self.full else sum(table.evicted for table in kept)
        return sum(table.pages.numel() for table in kept) - evicted // self.page_size

    def _extend(self, table: SessionTable, count: int) -> None:
        pages = self.full.allocate(count)
        if self.swa is not None:
            swa = slots_of(self.swa.allocate(count), self.page_size)
            self.mapping[slots_of(pages, self.page_size)] = swa
        table.pages = torch.cat([table.pages, pages])

    def _free_swa(self, table: SessionTable, start: int, end: int) -> None:
        """Free the SWA pages of positions ``[start, end)``, whole pages, and unmap them."""
        if self.swa is None or start >= end:
            return
        pages = table.pages[start // self.page_size : end // self.page_size]
        full_slots = slots_of(pages, self.page_size)
        swa_pages = self.mapping[pages * self.page_size] // self.page_size
        self.mapping[full_slots] = SENTINEL_SLOT
        self.swa.free(swa_pages)

    def _is_covered(self, table: SessionTable, rows: int) -> bool:
        """Return whether a query at position ``rows`` sees no evicted position."""
        if self.window_left is None or self.swa is None:
            return True
        return rows > 0 and table.evicted <= max(0, rows - self.window_left)
