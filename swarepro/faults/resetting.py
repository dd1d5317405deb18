"""Defects of the reset."""

from swarepro.faults.base import Effect, register
from swarepro.runtime.wrappers import AllocatorWrapper, on_allocator, on_every_allocator


class ResetZeroesFreeList(AllocatorWrapper):
    """Reset rebuilds the allocator and then zeroes every tensor, the free list among them."""

    def reset(self) -> None:
        """Rebuild, then zero."""
        super().reset()
        if self.swa is not None:
            self.swa.free_list.zero_()


class StaleMappingSurvivesReset(AllocatorWrapper):
    """Reset frees the slots but leaves the mapping as it was."""

    def reset(self) -> None:
        """Reset all but the mapping."""
        before = self.mapping.clone()
        super().reset()
        self.mapping.copy_(before)


class SkipReset(AllocatorWrapper):
    """Reset clears the pools, and who owns what stays as it was."""

    def reset(self) -> None:
        """Do nothing."""


register(
    "reset-zeroes-free-list",
    "A3",
    "reset zeroes the rebuilt free list: the next session is handed slot 0 again and again",
    part="allocator",
    effect=Effect.DIVERGES,
    wrap=on_allocator(ResetZeroesFreeList),
)
register(
    "stale-mapping-survives-reset",
    "A5",
    "reset frees the slots and leaves the mapping: positions of the last session map to free slots",
    part="allocator",
    effect=Effect.IDENTICAL,
    wrap=on_allocator(StaleMappingSurvivesReset),
)
register(
    "skip-reset",
    "A3",
    "reset clears the pools and frees nothing: the last session's slots stay owned",
    part="allocator",
    effect=Effect.IDENTICAL,
    wrap=on_every_allocator(SkipReset),
)
