"""Defects of the translation from full slots to SWA slots."""

import torch

from swarepro.faults.base import Effect, register
from swarepro.runtime.parts import Allocator
from swarepro.runtime.wrappers import AllocatorWrapper, on_allocator


class NoTranslation(AllocatorWrapper):
    """Sliding layers use full slots on the SWA pool: "this model has no SWA pool" was cached."""

    def translate(self, full_slots: torch.Tensor) -> torch.Tensor:
        """Return the full slots."""
        return full_slots.clone()


class CachedTranslation(AllocatorWrapper):
    """A translation is kept by its full slots, and survives what rebuilds the mapping."""

    def __init__(self, inner: Allocator) -> None:
        super().__init__(inner)
        self._cache: dict[tuple[int, ...], torch.Tensor] = {}

    def translate(self, full_slots: torch.Tensor) -> torch.Tensor:
        """Translate once for each table of full slots."""
        key = tuple(full_slots.tolist())
        if key not in self._cache:
            self._cache[key] = super().translate(full_slots)
        return self._cache[key]


register(
    "full-slots-on-swa-pool",
    "A9",
    "sliding layers use full slots on the SWA pool, as if there were no mapping: right until one"
    " lies outside it",
    part="allocator",
    effect=Effect.IDENTICAL,
    wrap=on_allocator(NoTranslation),
)
register(
    "cached-translation",
    "A10",
    "a translation is kept when the mapping is rebuilt: another session's slots are used",
    part="allocator",
    effect=Effect.DIVERGES,
    wrap=on_allocator(CachedTranslation),
)
