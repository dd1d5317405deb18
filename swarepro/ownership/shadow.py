"""The ownership shadow of one stage: it stands beside the pools and watches the parts."""

from collections.abc import Mapping
from dataclasses import replace

from swarepro.kvcache import KVGroup, KVPool
from swarepro.ownership.books import pools_of
from swarepro.ownership.events import AllocatorEvents
from swarepro.ownership.gathers import GatherCheck
from swarepro.ownership.reporter import Reporter
from swarepro.ownership.reserved import ReservedPage
from swarepro.ownership.rows import RowDigests
from swarepro.ownership.slots import SlotStates
from swarepro.ownership.stores import StoreCheck
from swarepro.ownership.translation import TranslationCheck
from swarepro.ownership.violations import ViolationLog
from swarepro.ownership.watched import (
    WatchedAllocator,
    WatchedAttention,
    WatchedLayers,
    WatchedMetadata,
    WatchedStore,
)
from swarepro.runtime.parts import StageParts


class OwnershipShadow:
    """Who owns which slot of one stage, kept beside the allocator and compared with its books.

    It changes nothing and raises nothing of its own; what it finds is in the log.

    Args:
        log: of the run, shared by its stages.
        stage: index of the stage.
        pools: of the stage, by group; their specs say which layers it has.
        row_digests: maps rows ``[N, 2, K, D]`` to ``[N]`` int64, on their device.
    """

    def __init__(
        self,
        log: ViolationLog,
        *,
        stage: int,
        pools: Mapping[KVGroup, KVPool],
        row_digests: RowDigests,
    ) -> None:
        self._report = Reporter(log, stage)
        self._pools = dict(pools)
        self._row_digests = row_digests
        self._events: AllocatorEvents | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of what is kept for each slot of all groups, but the row digests."""
        return 0 if self._events is None else self._events.num_bytes

    def watch(self, parts: StageParts) -> StageParts:
        """Return ``parts`` with all that the shadow looks at wrapped: its outermost wrapper.

        Called once, before any of the parts is used.
        """
        allocator, report = parts.allocator, self._report
        num_slots = {group: pool.num_slots for group, pool in self._pools.items()}
        states = {
            group: SlotStates(
                max(pages.capacity + pages.page_size, num_slots.get(group, 0)),
                len(self._pools[group].spec.layer_ids) if group in self._pools else 0,
            )
            for group, pages in pools_of(allocator).items()
        }
        self._events = AllocatorEvents(allocator, states, report)
        translation = TranslationCheck(self._events, num_slots, allocator.window_left, report)
        stores = StoreCheck(states, num_slots, allocator.page_size, self._row_digests, report)
        gathers = GatherCheck(
            self._pools,
            states,
            self._events.sessions,
            allocator.page_size,
            self._row_digests,
            report,
        )
        reserved = ReservedPage(allocator.page_size, self._row_digests, report)
        specs = [pool.spec for pool in self._pools.values()]
        return replace(
            parts,
            allocator=WatchedAllocator(allocator, self._events, translation),
            metadata=WatchedMetadata(parts.metadata, report),
            layers=WatchedLayers(parts.layers, specs, report),
            store=WatchedStore(parts.store, stores, reserved),
            attention=WatchedAttention(parts.attention, gathers),
        )

    def end(self) -> None:
        """Account for every slot once more; the run has ended."""
        if self._events is not None:
            self._events.end()
