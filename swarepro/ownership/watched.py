"""The parts as the shadow hands them on: they pass everything on, and it looks at what passes."""

from collections.abc import Sequence

import torch

from swarepro.kvcache import KVGroupSpec
from swarepro.ownership.events import AllocatorEvents
from swarepro.ownership.gathers import GatherCheck
from swarepro.ownership.places import check_places, check_positions
from swarepro.ownership.reporter import Reporter
from swarepro.ownership.reserved import ReservedPage
from swarepro.ownership.stores import StoreCheck
from swarepro.ownership.translation import TranslationCheck
from swarepro.plan import Phase, Span
from swarepro.runtime.parts import (
    Allocator,
    Attention,
    AttentionCall,
    LayerPlace,
    Layers,
    Metadata,
    Store,
    StoreContext,
)
from swarepro.runtime.wrappers import AllocatorWrapper


class WatchedAllocator(AllocatorWrapper):
    """An allocator whose books are read after each call."""

    def __init__(
        self, inner: Allocator, events: AllocatorEvents, translation: TranslationCheck
    ) -> None:
        super().__init__(inner)
        self._events = events
        self._translation = translation

    def check(self, spans: Sequence[Span]) -> None:
        """As the watched allocator's."""
        self._events.asked(spans)
        self._inner.check(spans)

    def ensure(self, spans: Sequence[Span]) -> None:
        """As the watched allocator's."""
        self._events.asked(spans)
        try:
            self._inner.ensure(spans)
        except Exception:
            self._events.ensured(spans, refused=True)
            raise
        self._events.ensured(spans, refused=False)

    def full_slots(self, session: int, end: int) -> torch.Tensor:
        """As the watched allocator's."""
        slots = self._inner.full_slots(session, end)
        self._translation.full_slots(session, slots)
        return slots

    def translate(self, full_slots: torch.Tensor) -> torch.Tensor:
        """As the watched allocator's."""
        slots = self._inner.translate(full_slots)
        self._events.touched()
        self._translation.translated(full_slots, slots)
        return slots

    def evict(self, session: int, before: int) -> None:
        """As the watched allocator's."""
        self._inner.evict(session, before)
        self._events.evicted(session, before)

    def finish(self, session: int, *, keep: bool) -> None:
        """As the watched allocator's."""
        self._inner.finish(session, keep=keep)
        self._events.finished(session, keep=keep)

    def reuse(self, session: int, of: int, rows: int) -> None:
        """As the watched allocator's."""
        self._inner.reuse(session, of, rows)
        self._events.reused(session, of, rows)

    def reset(self) -> None:
        """As the watched allocator's."""
        self._inner.reset()
        self._events.was_reset()


class WatchedMetadata:
    """Metadata whose positions are looked at."""

    def __init__(self, inner: Metadata, report: Reporter) -> None:
        self._inner = inner
        self._report = report

    def positions(self, span: Span) -> torch.Tensor:
        """As the watched metadata's."""
        positions = self._inner.positions(span)
        check_positions(positions, span, self._report)
        return positions


class WatchedLayers:
    """A layer table that is looked at."""

    def __init__(self, inner: Layers, specs: Sequence[KVGroupSpec], report: Reporter) -> None:
        self._inner = inner
        self._specs = specs
        self._report = report

    def places(self) -> tuple[LayerPlace, ...]:
        """As the watched table's."""
        places = self._inner.places()
        check_places(places, self._specs, self._report)
        return places


class WatchedStore:
    """A store whose slots are looked at before, and whose rows are remembered after it."""

    def __init__(self, inner: Store, stores: StoreCheck, reserved: ReservedPage) -> None:
        self._inner = inner
        self._stores = stores
        self._reserved = reserved

    def store(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        slots: torch.Tensor,
        context: StoreContext,
    ) -> None:
        """As the watched store's."""
        used = slots.cpu()
        right = self._stores.check(used, context)
        self._reserved.look(k_cache, v_cache, context.group)
        self._inner.store(k, v, k_cache, v_cache, slots, context)
        self._reserved.compare(k_cache, v_cache, context)
        self._stores.remember(k, v, used, right, context)


class WatchedAttention:
    """A route whose reads are looked at before they are made."""

    def __init__(self, inner: Attention, gathers: GatherCheck) -> None:
        self._inner = inner
        self._gathers = gathers

    def route(self, span: Span, layer: int) -> int:
        """As the watched route's."""
        return self._inner.route(span, layer)

    def reads_own_rows(self, phase: Phase) -> bool:
        """As the watched route's."""
        return self._inner.reads_own_rows(phase)

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """As the watched route's."""
        reads_own = [self._inner.reads_own_rows(x.span.phase) for x in call.requests]
        self._gathers.check(call, reads_own=reads_own)
        return self._inner.attend(call)
