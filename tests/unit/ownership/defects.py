"""Defects of an allocator, each a wrapper of the real lifecycle inside the shadow."""

from contextlib import suppress

import torch

from swarepro.errors import PositionGapError
from swarepro.kvcache import SessionTable, slots_of
from tests.unit.ownership.stage import WINDOW_LEFT, Passing


class SkipsAllocation(Passing):
    """Hands out full slots alone; the SWA pages are free again as if nothing had been taken."""

    def ensure(self, spans):
        mapping, free = self.mapping.clone(), self.swa.free_list.clone()
        self.inner.ensure(spans)
        self.mapping.copy_(mapping)
        self.swa.free_list = free


class AllocatesLate(Passing):
    """Maps what it handed out only after the first translation."""

    late = None

    def ensure(self, spans):
        before = self.mapping.clone()
        self.inner.ensure(spans)
        self.late = self.mapping.clone()
        self.mapping.copy_(before)

    def translate(self, full_slots):
        slots = self.inner.translate(full_slots)
        if self.late is not None:
            self.mapping.copy_(self.late)
            self.late = None
        return slots


class AliasesSentinel(Passing):
    def translate(self, full_slots):
        return torch.zeros_like(full_slots)


class FreesTwice(Passing):
    def finish(self, session, *, keep):
        pages = self.tables[session].pages
        self.inner.finish(session, keep=keep)
        self.full.free(pages)


class ZeroesFreeList(Passing):
    def reset(self):
        self.inner.reset()
        self.full.free_list.zero_()
        self.swa.free_list.zero_()


class IgnoresExhaustion(Passing):
    """Maps as many new pages as there are; the rest stays on the sentinel."""

    def check(self, spans):
        pass

    def ensure(self, spans):
        short = sum(max(0, -(-x.end // self.page_size)) for x in spans) - self.swa.num_free
        self.swa.free_list = torch.cat([self.swa.free_list, torch.zeros(max(0, short)).long()])
        self.inner.ensure(spans)
        self.swa.free_list = self.swa.free_list[self.swa.free_list != 0]


class AllocatesBeforeItRefuses(Passing):
    """Hands out what the first span needs, and then finds that the second does not fit."""

    def check(self, spans):
        pass

    def ensure(self, spans):
        for span in spans:
            self.inner.ensure([span])


class FinishKeepsMapping(Passing):
    def finish(self, session, *, keep):
        before = self.mapping.clone()
        self.inner.finish(session, keep=keep)
        self.mapping.copy_(before)


class FinishKeepsTable(Passing):
    """Frees the pages; the session's block table still lists them."""

    def finish(self, session, *, keep):
        table = self.tables[session]
        self.inner.finish(session, keep=keep)
        self.tables[session] = table


class EvictKeepsMapping(Passing):
    def evict(self, session, before):
        mapping = self.mapping.clone()
        self.inner.evict(session, before)
        self.mapping.copy_(mapping)


class EvictsTooMuch(Passing):
    def evict(self, session, before):
        self.inner.evict(session, before + 2 * self.page_size)


class EvictLeaks(Passing):
    """Unmaps what it evicts and does not free it."""

    def evict(self, session, before):
        free = self.swa.free_list
        self.inner.evict(session, before)
        self.swa.free_list = free


class EvictsTwice(Passing):
    """Frees every position below, and not only those that were not freed before."""

    def evict(self, session, before):
        pages = self.mapping[self.tables[session].pages * self.page_size] // self.page_size
        end = max(0, before // self.page_size - 1)
        for page in pages[:end]:
            self.swa.free(page[None])
        self.mapping[slots_of(self.tables[session].pages[:end], self.page_size)] = 0
        self.tables[session].evicted = end * self.page_size


class EvictForgets(Passing):
    """Frees what it evicts; mapping and table stay as they were."""

    def evict(self, session, before):
        pages = self.tables[session].pages[: max(0, before // self.page_size - 1)]
        self.swa.free(self.mapping[pages * self.page_size] // self.page_size)


class EvictOnlySaysSo(Passing):
    """Counts positions as evicted; their slots are neither unmapped nor freed."""

    def evict(self, session, before):
        end = (before // self.page_size - 1) * self.page_size
        self.tables[session].evicted = max(self.tables[session].evicted, end)


class AllocationLeaks(Passing):
    """Takes a page more than it maps."""

    def ensure(self, spans):
        self.inner.ensure(spans)
        self.swa.allocate(1)


class StaysOnFreeList(Passing):
    """What is handed out stays on the free list."""

    def ensure(self, spans):
        free = self.swa.free_list
        self.inner.ensure(spans)
        self.swa.free_list = free


class FinishLeaks(Passing):
    def finish(self, session, *, keep):
        self.mapping[slots_of(self.tables[session].pages, self.page_size)] = 0
        del self.tables[session]


class SkipsFinish(Passing):
    def finish(self, session, *, keep):
        pass


class FinishFreesAnother(Passing):
    """Frees a page of a session that goes on."""

    def finish(self, session, *, keep):
        self.inner.finish(session, keep=keep)
        other = next(iter(self.tables.values()))
        self.swa.free(self.mapping[other.pages[:1] * self.page_size] // self.page_size)


class FreesPageBeyond(Passing):
    def finish(self, session, *, keep):
        self.inner.finish(session, keep=keep)
        self.swa.free(torch.tensor([self.swa.num_pages + 3]))


class NoTranslation(Passing):
    def translate(self, full_slots):
        return full_slots.clone()


class TranslatesToFree(Passing):
    def translate(self, full_slots):
        return self.swa.free_list[: full_slots.numel()] * self.page_size


class TranslatesToOthers(Passing):
    """Every session gets the slots of the first one."""

    def translate(self, full_slots):
        return self.inner.translate(self.tables[0].pages[: full_slots.numel()])


class TranslatesToOne(Passing):
    def translate(self, full_slots):
        return torch.full_like(full_slots, int(self.inner.translate(full_slots)[-1]))


class CachesTranslation(Passing):
    def __init__(self, inner):
        super().__init__(inner)
        self.cache = {}

    def translate(self, full_slots):
        key = tuple(full_slots.tolist())
        return self.cache.setdefault(key, self.inner.translate(full_slots))


class FullSlotsBeyond(Passing):
    def full_slots(self, session, end):
        return self.inner.full_slots(session, end) + 1000


class Ring(Passing):
    """Positions beyond two windows get the slots of those two windows before."""

    def ensure(self, spans):
        self.inner.ensure(spans)
        ring = 2 * (WINDOW_LEFT + 1)
        for span in spans:
            full = slots_of(self.tables[span.session].pages, self.page_size)
            for position in range(ring, span.end):
                if self.mapping[full[position]] != self.mapping[full[position - ring]]:
                    self.swa.free(self.mapping[full[position]][None])
                    self.mapping[full[position]] = self.mapping[full[position - ring]]


class HandsOutTwice(Passing):
    """Gives the spans of one call the same page."""

    def ensure(self, spans):
        self.inner.ensure(spans)
        if len(spans) > 1:
            first, second = (self.tables[x.session].pages for x in spans)
            self.full.free(second[:1].clone())
            self.swa.free(self.mapping[second[:1] * self.page_size] // self.page_size)
            self.mapping[second[:1]] = 0
            second[0] = first[0]


class ReusesTombstones(Passing):
    def reuse(self, session, of, rows):
        table = self.tables.pop(of)
        rest = table.pages[rows:]
        self.swa.free(self.mapping[rest])
        self.mapping[rest] = 0
        self.full.free(rest)
        self.tables[session] = SessionTable(
            pages=table.pages[:rows], allocated=rows, evicted=min(table.evicted, rows)
        )


class ReusesOthersRows(Passing):
    """The window's positions get one another's slots."""

    def reuse(self, session, of, rows):
        self.inner.reuse(session, of, rows)
        full = slots_of(self.tables[session].pages, self.page_size)[rows - 4 : rows]
        self.mapping[full] = self.mapping[full].roll(1)


class ResetKeepsMapping(Passing):
    def reset(self):
        before = self.mapping.clone()
        self.inner.reset()
        self.mapping.copy_(before)


class SkipsReset(Passing):
    def reset(self):
        pass


class ResetKeepsSlots(Passing):
    """Forgets the sessions; their slots are neither unmapped nor freed."""

    def reset(self):
        self.tables.clear()


class Lenient(Passing):
    """Refuses nothing, and does nothing where the real one would refuse."""

    def check(self, spans):
        pass

    def ensure(self, spans):
        with suppress(PositionGapError):
            self.inner.ensure(spans)
