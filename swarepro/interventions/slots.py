"""Interventions on the slots: allocate what nobody allocated."""

from collections.abc import Sequence

from swarepro.interventions.base import FACTORS, Factor, Means, Ran, Scope
from swarepro.kvcache import SENTINEL_SLOT, slots_of
from swarepro.plan import Span
from swarepro.runtime.parts import PartWrapper
from swarepro.runtime.wrappers import AllocatorWrapper, on_allocator


class AllocateSwa(AllocatorWrapper):
    """Every position up to a span's end owns an SWA slot before metadata is built.

    What it hands out it also evicts, where the wrapped allocator does not: the pool would run dry.
    """

    def ensure(self, spans: Sequence[Span]) -> None:
        """Hand out SWA pages to the pages that have none; CapacityError when too few are free."""
        super().ensure(spans)
        if self.swa is None:
            return
        for span in spans:
            table = self.tables[span.session]
            pages = table.pages[table.evicted // self.page_size :]
            missing = pages[self.mapping[pages * self.page_size] == SENTINEL_SLOT]
            slots = slots_of(self.swa.allocate(missing.numel()), self.page_size)
            self.mapping[slots_of(missing, self.page_size)] = slots

    def evict(self, session: int, before: int) -> None:
        """Free what no later query can see and is still live."""
        super().evict(session, before)
        table = self.tables[session]
        end = (before - self.page_size) // self.page_size * self.page_size
        if self.swa is None or end <= table.evicted:
            return
        pages = table.pages[table.evicted // self.page_size : end // self.page_size]
        first_slots = self.mapping[pages * self.page_size]
        live = first_slots != SENTINEL_SLOT
        self.swa.free(first_slots[live] // self.page_size)
        self.mapping[slots_of(pages[live], self.page_size)] = SENTINEL_SLOT
        table.evicted = end


def _wrap(means: Means) -> PartWrapper:
    return on_allocator(AllocateSwa)


def _applies(ran: Ran) -> str | None:
    return None if ran.has_sliding else "no stage has sliding layers, so there is no SWA pool"


FACTORS.register(
    "alloc-swa",
    Factor(
        name="alloc-swa",
        summary="SWA slots are allocated for every position: the cause, if nobody allocates them",
        part="allocator",
        scope=Scope.START,
        wrap=_wrap,
        applies=_applies,
    ),
)
