"""Defects of SWA slot allocation: each wraps the allocator of a stage."""

from collections.abc import Callable
from dataclasses import replace

import torch

from swarepro.faults.base import FAULTS, Effect, Fault
from swarepro.kvcache import SENTINEL_SLOT, SlotAllocator
from swarepro.runtime.parts import Allocator, PartWrapper, StageParts


class AllocatorWrapper:
    """Passes everything on to the allocator that it wraps; a fault overrides one method."""

    def __init__(self, inner: Allocator) -> None:
        self._inner = inner

    @property
    def full_slots(self) -> torch.Tensor:
        """As the wrapped allocator's."""
        return self._inner.full_slots

    @property
    def mapping(self) -> torch.Tensor:
        """As the wrapped allocator's."""
        return self._inner.mapping

    @property
    def allocator(self) -> SlotAllocator:
        """As the wrapped allocator's."""
        return self._inner.allocator

    @property
    def allocated(self) -> int:
        """As the wrapped allocator's."""
        return self._inner.allocated

    def ensure(self, start: int, count: int) -> None:
        """As the wrapped allocator's."""
        self._inner.ensure(start, count)

    def translate(self, full_slots: torch.Tensor) -> torch.Tensor:
        """As the wrapped allocator's."""
        return self._inner.translate(full_slots)

    def reset(self) -> None:
        """As the wrapped allocator's."""
        self._inner.reset()


class SkipAllocation(AllocatorWrapper):
    """Nobody allocates: the mapping stays all zero."""

    def ensure(self, start: int, count: int) -> None:
        """Do nothing."""


class AllocateAfterMetadata(AllocatorWrapper):
    """The slots are allocated only after the step's metadata was translated."""

    def __init__(self, inner: Allocator) -> None:
        super().__init__(inner)
        self._late: tuple[int, int] | None = None

    def ensure(self, start: int, count: int) -> None:
        """Put the allocation off."""
        self._late = (start, count)

    def translate(self, full_slots: torch.Tensor) -> torch.Tensor:
        """Translate first, then allocate."""
        slots = super().translate(full_slots)
        if self._late is not None:
            super().ensure(*self._late)
            self._late = None
        return slots


class RowsAliasSentinel(AllocatorWrapper):
    """Slots are allocated, but every translation comes out as slot 0."""

    def translate(self, full_slots: torch.Tensor) -> torch.Tensor:
        """Return slot 0 for every position."""
        return torch.full_like(super().translate(full_slots), SENTINEL_SLOT)


class ResetZeroesFreeList(AllocatorWrapper):
    """Reset rebuilds the allocator and then zeroes every tensor, the free list among them."""

    def reset(self) -> None:
        """Rebuild, then zero."""
        super().reset()
        self.allocator.free_list.zero_()


class StaleMappingSurvivesReset(AllocatorWrapper):
    """Reset frees the slots but leaves the mapping as it was."""

    def reset(self) -> None:
        """Reset all but the mapping."""
        before = self.mapping.clone()
        super().reset()
        self.mapping.copy_(before)


class IgnoreExhaustion(AllocatorWrapper):
    """A call that does not fit gets what there is; its last positions stay on slot 0."""

    def ensure(self, start: int, count: int) -> None:
        """Allocate as far as the pool goes, and say nothing."""
        reachable = self.allocated + self.allocator.num_free
        end = min(start + count, reachable)
        if end > self.allocated:
            super().ensure(self.allocated, end - self.allocated)


def _wraps_allocator(wrapper: Callable[[Allocator], Allocator]) -> PartWrapper:
    def wrap(parts: StageParts) -> StageParts:
        if parts.allocator is None:
            return parts
        return replace(parts, allocator=wrapper(parts.allocator))

    return wrap


def _register(
    name: str, summary: str, effect: Effect, wrapper: Callable[[Allocator], Allocator]
) -> None:
    FAULTS.register(
        name,
        Fault(
            name=name,
            summary=summary,
            part="allocator",
            effect=effect,
            wrap=_wraps_allocator(wrapper),
        ),
    )


_register(
    "skip-swa-allocation",
    "no SWA slots are ever allocated: every row is stored to slot 0 and every prefix read from it",
    Effect.DIVERGES,
    SkipAllocation,
)
_register(
    "reset-zeroes-free-list",
    "reset zeroes the rebuilt free list: the next session is handed slot 0 again and again",
    Effect.DIVERGES,
    ResetZeroesFreeList,
)
_register(
    "allocate-after-metadata",
    "slots are allocated after the step's metadata was translated: its rows go to slot 0",
    Effect.DIVERGES,
    AllocateAfterMetadata,
)
_register(
    "swa-rows-alias-slot-0",
    "slots are allocated, but stores and reads use slot 0 for every position",
    Effect.DIVERGES,
    RowsAliasSentinel,
)
_register(
    "stale-mapping-survives-reset",
    "reset frees the slots and leaves the mapping: positions of the last session map to free slots",
    Effect.IDENTICAL,
    StaleMappingSurvivesReset,
)
_register(
    "ignore-exhaustion",
    "a call that needs more slots than are free gets a part of them; the rest stays on slot 0",
    Effect.DIVERGES,
    IgnoreExhaustion,
)
