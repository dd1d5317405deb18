"""Defects of handing out SWA slots: who allocates, when, and how many."""

from collections.abc import Sequence

import torch

from swarepro.errors import CapacityError
from swarepro.faults.base import Effect, register
from swarepro.kvcache import SENTINEL_SLOT, num_pages_for, slots_of
from swarepro.plan import Span
from swarepro.runtime.parts import Allocator
from swarepro.runtime.wrappers import AllocatorWrapper, on_allocator


class UnevenMapping(AllocatorWrapper):
    """An allocator whose positions share SWA pages, or have the sentinel's; what ends frees none.

    The lifecycle below frees a page for each position: here once, and only where nobody has it.
    """

    def finish(self, session: int, *, keep: bool) -> None:
        """Free a page once, and no sentinel."""
        super().finish(session, keep=keep)
        self.tidy()

    def evict(self, session: int, before: int) -> None:
        """Free a page once, and no sentinel."""
        super().evict(session, before)
        self.tidy()

    def reuse(self, session: int, of: int, rows: int) -> None:
        """Free a page once, and no sentinel."""
        super().reuse(session, of, rows)
        self.tidy()

    def tidy(self) -> None:
        """Take from the SWA free list what is the sentinel's, mapped, or there before."""
        if self.swa is None:
            return
        taken = {SENTINEL_SLOT, *torch.unique(self.mapping // self.page_size).tolist()}
        pages = dict.fromkeys(page for page in self.swa.free_list.tolist() if page not in taken)
        self.swa.free_list = torch.tensor(list(pages), dtype=torch.int64)


class SkipAllocation(UnevenMapping):
    """Nobody allocates SWA slots: the mapping stays all zero."""

    def ensure(self, spans: Sequence[Span]) -> None:
        """Hand out full slots alone."""
        full_slots = self.ensured(spans)
        self.give_back(full_slots, torch.full_like(full_slots, SENTINEL_SLOT))
        self.tidy()

    def evict(self, session: int, before: int) -> None:
        """Do nothing: there is nothing to free."""


class AllocateAfterMetadata(AllocatorWrapper):
    """SWA slots are allocated only after the step's metadata was translated."""

    def __init__(self, inner: Allocator) -> None:
        super().__init__(inner)
        self._late = torch.empty(0, dtype=torch.int64)
        self._to_translate = 0

    def ensure(self, spans: Sequence[Span]) -> None:
        """Put the SWA slots off."""
        self._late = self.ensured(spans)
        self._to_translate = len(spans)
        self.give_back(self._late, torch.full_like(self._late, SENTINEL_SLOT))

    def translate(self, full_slots: torch.Tensor) -> torch.Tensor:
        """Translate first, the prefix of every span of the step, then allocate."""
        slots = super().translate(full_slots)
        self._to_translate -= 1
        if self.swa is not None and self._to_translate == 0:
            late = self._late[self.mapping[self._late] == SENTINEL_SLOT]
            pages = self.swa.allocate(late.numel() // self.page_size)
            self.mapping[late] = slots_of(pages, self.page_size)
            self._late = self._late[:0]
        return slots


class RowsAliasSentinel(AllocatorWrapper):
    """Slots are allocated, but every translation comes out as slot 0."""

    def translate(self, full_slots: torch.Tensor) -> torch.Tensor:
        """Return slot 0 for every position."""
        return torch.full_like(super().translate(full_slots), SENTINEL_SLOT)


class IgnoreExhaustion(UnevenMapping):
    """A call for which the SWA pool has too few slots gets what there is, and then page 0."""

    def check(self, spans: Sequence[Span]) -> None:
        """Refuse no call for want of SWA slots."""
        try:
            super().check(spans)
        except CapacityError:
            if self._needed(spans) > self.full.num_free + self._kept(evicted=False):
                raise

    def ensure(self, spans: Sequence[Span]) -> None:
        """Hand out page 0 where no other is left, and say nothing."""
        if self.swa is None:
            super().ensure(spans)
            return
        short = self._needed(spans) - self.swa.num_free - self._kept(evicted=True)
        pages = torch.full((max(0, short),), SENTINEL_SLOT)
        self.swa.free_list = torch.cat([self.swa.free_list, pages])
        try:
            super().ensure(spans)
        finally:
            self.swa.free_list = self.swa.free_list[self.swa.free_list != SENTINEL_SLOT]

    def _needed(self, spans: Sequence[Span]) -> int:
        """Return how many pages the spans' sessions lack."""
        ends = ((span.session, num_pages_for(span.end, self.page_size)) for span in spans)
        return sum(max(0, end - self.num_pages(session)) for session, end in ends)

    def _kept(self, *, evicted: bool) -> int:
        """Return how many pages kept sessions hold; with ``evicted`` less those they lost."""
        kept = [table for table in self.tables.values() if table.kept]
        lost = sum(table.evicted for table in kept) // self.page_size if evicted else 0
        return sum(table.pages.numel() for table in kept) - lost


class RingOfTwoWindows(UnevenMapping):
    """A session's SWA slots form a ring of two windows; a chunk as long as it wraps too early."""

    def ensure(self, spans: Sequence[Span]) -> None:
        """Map every position beyond the ring to the slot of the one that a ring before it has."""
        full_slots = self.ensured(spans)
        if self.window_left is None:
            return
        ring = -(-2 * (self.window_left + 1) // self.page_size) * self.page_size
        for span in spans:
            own = self.owned(span.session)
            behind = torch.isin(own, full_slots) & (torch.arange(own.numel()) >= ring)
            places = behind.nonzero().flatten()
            self.give_back(own[places], self.mapping[own[places % ring]])
        self.tidy()

    def evict(self, session: int, before: int) -> None:
        """Do nothing: a ring holds no more than it must."""


register(
    "skip-swa-allocation",
    "A1",
    "no SWA slots are ever allocated: every row is stored to slot 0 and every prefix read from it",
    part="allocator",
    effect=Effect.DIVERGES,
    wrap=on_allocator(SkipAllocation),
)
register(
    "allocate-after-metadata",
    "A1",
    "slots are allocated after the step's metadata was translated: its rows go to slot 0",
    part="allocator",
    effect=Effect.DIVERGES,
    wrap=on_allocator(AllocateAfterMetadata),
)
register(
    "swa-rows-alias-slot-0",
    "A1",
    "slots are allocated, but stores and reads use slot 0 for every position",
    part="allocator",
    effect=Effect.DIVERGES,
    wrap=on_allocator(RowsAliasSentinel),
)
register(
    "ignore-exhaustion",
    "A4",
    "a call that needs more slots than are free gets a part of them; the rest stays on slot 0",
    part="allocator",
    effect=Effect.DIVERGES,
    wrap=on_allocator(IgnoreExhaustion),
)
register(
    "swa-ring-wraps-early",
    "C2",
    "SWA slots form a ring of two windows: a chunk overwrites rows that its own queries still see",
    part="allocator",
    effect=Effect.DIVERGES,
    wrap=on_allocator(RingOfTwoWindows),
)
