"""Defects of giving slots back: twice, not at all, or with a mapping that stays."""

from collections.abc import Sequence

from swarepro.faults.base import Effect, register
from swarepro.kvcache import SENTINEL_SLOT
from swarepro.plan import Span
from swarepro.runtime.wrappers import AllocatorWrapper, on_allocator, on_every_allocator


class FreePagesTwice(AllocatorWrapper):
    """A finished session's full pages come onto the free list twice: two sessions will own them."""

    def finish(self, session: int, *, keep: bool) -> None:
        """Free the full pages, and free them again."""
        table = self.tables.get(session)
        super().finish(session, keep=keep)
        if table is not None and not keep:
            self.full.free(table.pages)


class FinishKeepsMapping(AllocatorWrapper):
    """A finished session's SWA slots are freed and stay mapped; who is mapped gets no new slot."""

    def finish(self, session: int, *, keep: bool) -> None:
        """Free, and leave the mapping as it was."""
        full_slots = self.owned(session)
        before = self.mapping[full_slots].clone()
        super().finish(session, keep=keep)
        if not keep:
            self.mapping[full_slots] = before

    def ensure(self, spans: Sequence[Span]) -> None:
        """Hand out SWA slots only where the mapping has none."""
        before = self.mapping.clone()
        full_slots = self.ensured(spans)
        mapped = full_slots[before[full_slots] != SENTINEL_SLOT]
        self.give_back(mapped, before[mapped])


class TombstoneKeepsMapping(AllocatorWrapper):
    """Evicted positions keep their mapping, and it is freed again when the session ends."""

    def evict(self, session: int, before: int) -> None:
        """Free, and leave the mapping as it was."""
        full_slots = self.owned(session)
        mapped = self.mapping[full_slots].clone()
        super().evict(session, before)
        self.mapping[full_slots] = mapped

    def finish(self, session: int, *, keep: bool) -> None:
        """Free every slot that is mapped, the tombstones' too."""
        if session in self.tables and not keep:
            self.tables[session].evicted = 0
        super().finish(session, keep=keep)


class FreeUnmapped(AllocatorWrapper):
    """The end of a session frees what the mapping says, and that is slot 0 for tombstones."""

    def finish(self, session: int, *, keep: bool) -> None:
        """Free without looking for slot 0."""
        if session in self.tables and not keep:
            self.tables[session].evicted = 0
        super().finish(session, keep=keep)


class FinishLeaks(AllocatorWrapper):
    """A finished session is forgotten and its slots are not freed."""

    def finish(self, session: int, *, keep: bool) -> None:
        """Forget the session."""
        if keep:
            super().finish(session, keep=keep)
            return
        if self.swa is not None:
            self.mapping[self.owned(session)] = SENTINEL_SLOT
        self.tables.pop(session, None)


class EvictTooEarly(AllocatorWrapper):
    """Out-of-window eviction counts the window from the wrong end: rows still seen are freed."""

    def evict(self, session: int, before: int) -> None:
        """Evict half a window more than no query can see."""
        window = 0 if self.window_left is None else self.window_left
        super().evict(session, before + window // 2 + self.page_size)


register(
    "free-pages-twice",
    "A2",
    "a finished session's pages are on the free list twice: two later sessions own the same page",
    part="allocator",
    effect=Effect.DIVERGES,
    wrap=on_every_allocator(FreePagesTwice),
)
register(
    "finish-keeps-mapping",
    "A5",
    "a finished session's slots are free and stay mapped: the next owner of the full slots uses"
    " them",
    part="allocator",
    effect=Effect.DIVERGES,
    wrap=on_allocator(FinishKeepsMapping),
)
register(
    "tombstone-keeps-mapping",
    "A6",
    "an evicted position keeps its mapping, and the end of its session frees a slot that another"
    " owns",
    part="allocator",
    effect=Effect.DIVERGES,
    wrap=on_allocator(TombstoneKeepsMapping),
)
register(
    "free-unmapped-slots",
    "A8",
    "the end of a session frees slot 0 for each tombstone: it is handed out as if it were a slot",
    part="allocator",
    effect=Effect.DIVERGES,
    wrap=on_allocator(FreeUnmapped),
)
register(
    "finish-leaks-slots",
    "A6",
    "a finished session is forgotten and its slots are never free again",
    part="allocator",
    effect=Effect.IDENTICAL,
    wrap=on_every_allocator(FinishLeaks),
)
register(
    "evict-too-early",
    "",
    "eviction frees rows that the window of the next query still holds",
    part="allocator",
    effect=Effect.DIVERGES,
    wrap=on_allocator(EvictTooEarly),
)
