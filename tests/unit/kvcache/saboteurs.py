"""Owners that are broken in one way each: every property has to fail for one of them."""

from collections.abc import Sequence

import torch

from swarepro.kvcache import SENTINEL_SLOT, SessionTable, SlotLifecycle, slots_of
from swarepro.plan import Span


class LeaksAtFinish(SlotLifecycle):
    def release(self, session: int) -> None:
        full, swa = self.full.free_list, None if self.swa is None else self.swa.free_list
        super().release(session)
        self.full.free_list = full
        if self.swa is not None and swa is not None:
            self.swa.free_list = swa


class LeaksTheSwaPool(SlotLifecycle):
    def release(self, session: int) -> None:
        swa = None if self.swa is None else self.swa.free_list
        super().release(session)
        if self.swa is not None and swa is not None:
            self.swa.free_list = swa


class FreesTwice(SlotLifecycle):
    def release(self, session: int) -> None:
        pages = self.tables[session].pages
        super().release(session)
        self.full.free(pages)


class EvictsOnePageTooMany(SlotLifecycle):
    def evict(self, session: int, before: int) -> None:
        super().evict(session, before + self.page_size)


class EvictsWithoutItsMargin(SlotLifecycle):
    """Every page that no later query sees; nothing that is seen is lost, only the margin."""

    def evict(self, session: int, before: int) -> None:
        super().evict(session, before // self.page_size * self.page_size + self.page_size)


class LeavesTheMapping(SlotLifecycle):
    def _free_swa(self, table: SessionTable, start: int, end: int) -> None:
        before = self.mapping.clone()
        super()._free_swa(table, start, end)
        self.mapping.copy_(before)


class OrderDependsOnChunks(SlotLifecycle):
    """The pages of a call are handed out backwards."""

    def _extend(self, table: SessionTable, count: int) -> None:
        free = self.full.free_list
        self.full.free_list = torch.cat([free[:count].flip(0), free[count:]])
        super()._extend(table, count)


class HalfAllocates(SlotLifecycle):
    """Refuses when it is too late: earlier spans have got their pages."""

    def ensure(self, spans: Sequence[Span]) -> None:
        for span in spans:
            super().ensure((span,))


class LooksAtTheFullPoolOnly(SlotLifecycle):
    """The full page is gone when the SWA pool turns out to be empty."""

    def ensure(self, spans: Sequence[Span]) -> None:
        swa, self.swa = self.swa, None
        try:
            self.check(spans)
        finally:
            self.swa = swa
        for span in spans:
            table = self.tables.setdefault(span.session, SessionTable())
            self._extend(table, self._missing(span))
            table.allocated = max(table.allocated, span.end)


class AllocatesAgain(SlotLifecycle):
    """What is owned is handed out anew."""

    def ensure(self, spans: Sequence[Span]) -> None:
        for span in spans:
            if span.session in self.tables:
                table = self.tables[span.session]
                logical = range(span.start // self.page_size, -(-span.end // self.page_size))
                owned = [page for page in logical if page < table.pages.numel()]
                if self.swa is not None and owned and self.swa.num_free >= len(owned):
                    swa = slots_of(self.swa.allocate(len(owned)), self.page_size)
                    self.mapping[slots_of(table.pages[owned], self.page_size)] = swa
        super().ensure(spans)


class SharesAPage(SlotLifecycle):
    """The second session of a step gets the last page of the first one again."""

    def ensure(self, spans: Sequence[Span]) -> None:
        super().ensure(spans)
        if len(spans) > 1:
            first, second = (self.tables[span.session] for span in spans[:2])
            second.pages = torch.cat([first.pages[-1:], second.pages[1:]])


class GivesUpTheLast(SlotLifecycle):
    """Kept sessions go, the one that was finished last before the others."""

    def ensure(self, spans: Sequence[Span]) -> None:
        kept = [session for session, table in self.tables.items() if table.kept]
        for session in reversed(kept):
            self.tables[session] = self.tables.pop(session)
        super().ensure(spans)
        for session in kept:
            if session in self.tables:
                self.tables[session] = self.tables.pop(session)


class GivesUpForNothing(SlotLifecycle):
    """Kept sessions go although there is room."""

    def ensure(self, spans: Sequence[Span]) -> None:
        self.check(spans)
        for session in [session for session, table in self.tables.items() if table.kept]:
            self.release(session)
        super().ensure(spans)


class ReusesTombstones(SlotLifecycle):
    def _is_covered(self, table: SessionTable, rows: int) -> bool:
        return True


class ReuseLeaksTheRest(SlotLifecycle):
    def reuse(self, session: int, of: int, rows: int) -> None:
        full = self.full.free_list
        super().reuse(session, of, rows)
        self.full.free_list = full


class ReuseForgetsTombstones(SlotLifecycle):
    """The new session's books say that it owns what its predecessor had evicted."""

    def reuse(self, session: int, of: int, rows: int) -> None:
        super().reuse(session, of, rows)
        self.tables[session].evicted = 0


class ReuseFailsLate(SlotLifecycle):
    """The kept session is gone before it is found out that it cannot be reused."""

    def reuse(self, session: int, of: int, rows: int) -> None:
        if self.reusable(of, rows) != rows and of in self.tables and self.tables[of].kept:
            del self.tables[of]
        super().reuse(session, of, rows)


class IgnoresGaps(SlotLifecycle):
    def check(self, spans: Sequence[Span]) -> None:
        super().check([Span(session=s.session, start=0, end=s.end) for s in spans])


class LeaksOnReset(SlotLifecycle):
    """Forgets every session, but not that pages were handed out."""

    def reset(self) -> None:
        full = self.full.free_list
        super().reset()
        self.full.free_list = full


class SkipsReset(SlotLifecycle):
    def reset(self) -> None:
        pass


class HandsOutTheSentinel(SlotLifecycle):
    def reset(self) -> None:
        super().reset()
        self.full.free_list = self.full.free_list - 1
        if self.swa is not None:
            self.swa.free_list = self.swa.free_list - 1


class MapsNothing(SlotLifecycle):
    """The defect that this project began with: pages are handed out and nobody maps them."""

    def _extend(self, table: SessionTable, count: int) -> None:
        super()._extend(table, count)
        self.mapping.fill_(SENTINEL_SLOT)


class OnlyShortCalls(SlotLifecycle):
    """A lifecycle gated on what is asked: it serves some calls alone."""

    def ensure(self, spans: Sequence[Span]) -> None:
        if all(span.rows != 3 for span in spans):
            super().ensure(spans)
