"""Defects of rows in the pool: written where nobody owns, or changed after they were written."""

import torch

from swarepro.faults.base import Effect, register
from swarepro.kvcache import SENTINEL_SLOT, KVGroup
from swarepro.plan import Phase, Span
from swarepro.runtime.parts import Store, StoreContext
from swarepro.runtime.wrappers import on_store

_GLOBAL_BASE = 1e6
_SHIFT = 4


class StoreWrapper:
    """A store that does what the wrapped one does, and `after` it something else."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    def store(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        slots: torch.Tensor,
        context: StoreContext,
    ) -> None:
        """Store the rows, then do what goes wrong."""
        self._inner.store(k, v, k_cache, v_cache, slots, context)
        self.after(k_cache, v_cache, slots, context)

    def after(
        self,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        slots: torch.Tensor,
        context: StoreContext,
    ) -> None:
        """Do nothing."""


class PaddingRowsStored(StoreWrapper):
    """Rows that pad the batch are stored too: undefined values, to slot 0."""

    def after(
        self,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        slots: torch.Tensor,
        context: StoreContext,
    ) -> None:
        """Store an undefined row to slot 0 of a sliding layer."""
        if context.group is KVGroup.SLIDING:
            k_cache[SENTINEL_SLOT] = torch.nan
            v_cache[SENTINEL_SLOT] = torch.nan


class RowsNeverLand(StoreWrapper):
    """A copy is not waited for: the last row of a chunk holds another row when it is read."""

    def after(
        self,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        slots: torch.Tensor,
        context: StoreContext,
    ) -> None:
        """Put the row before the last of a chunk over the last."""
        for span, own in _by_span(context, slots):
            if span.phase is Phase.PREFILL and own.numel() > 1:
                k_cache[own[-1]] = k_cache[own[-2]]
                v_cache[own[-1]] = v_cache[own[-2]]


class SyncElided(StoreWrapper):
    """The sync after a decoded token is elided: its row becomes that of the next one, and stays.

    A prefix that is computed in chunks has no such row.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        # Of the token decoded last, by layer and session; a chunk ends the row of tokens.
        self._last: dict[tuple[int, int], torch.Tensor] = {}

    def after(
        self,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        slots: torch.Tensor,
        context: StoreContext,
    ) -> None:
        """Put the row of a decoded token over that of the one decoded before."""
        for span, own in _by_span(context, slots):
            key = context.layer, span.session
            last = self._last.pop(key, None)
            if span.phase is not Phase.DECODE:
                continue
            if last is not None:
                k_cache[last] = k_cache[own]
                v_cache[last] = v_cache[own]
            self._last[key] = own


class ShiftWithGlobalBase(StoreWrapper):
    """A context shift rotates the stored keys of sliding layers, by the global layers' base."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        # Of the last chunk, by layer and session: a session begins with one, after a reset too.
        self._stored: dict[tuple[int, int], torch.Tensor] = {}

    def after(
        self,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        slots: torch.Tensor,
        context: StoreContext,
    ) -> None:
        """Shift what a chunk stored when the first token after it is decoded."""
        if context.group is not KVGroup.SLIDING:
            return
        for span, own in _by_span(context, slots):
            key = context.layer, span.session
            if span.phase is Phase.PREFILL:
                self._stored[key] = own
            elif key in self._stored:
                old = self._stored.pop(key)
                k_cache[old] = _rotated(k_cache[old], -_SHIFT)


def _by_span(context: StoreContext, slots: torch.Tensor) -> list[tuple[Span, torch.Tensor]]:
    """Return each span of a store with those of ``slots [T]`` that are its own."""
    rows = [span.rows for span in context.spans]
    return list(zip(context.spans, torch.split(slots, rows), strict=True))


def _rotated(keys: torch.Tensor, by: int) -> torch.Tensor:
    """Rotate ``[N, K, D]`` by ``by`` positions with the base of global layers."""
    half = keys.shape[-1] // 2
    angles = by * _GLOBAL_BASE ** (-torch.arange(half, device=keys.device) / half)
    cos, sin = angles.cos().to(keys.dtype), angles.sin().to(keys.dtype)
    first, second = keys.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


register(
    "padding-rows-stored",
    "A7",
    "rows that pad a batch are stored to slot 0, undefined; masked lanes load it",
    part="store",
    effect=Effect.DIVERGES,
    wrap=on_store(PaddingRowsStored),
)
register(
    "copy-not-waited-for",
    "E3",
    "a copy into the pool is not waited for: a row holds another row's values when it is read",
    part="store",
    effect=Effect.DIVERGES,
    wrap=on_store(RowsNeverLand),
)
register(
    "sync-elided",
    "E5",
    "a sync between decoded tokens is elided: each one's row becomes the next one's, and stays; the"
    " same prefix computed in full is right",
    part="store",
    effect=Effect.DIVERGES,
    wrap=on_store(SyncElided),
)
register(
    "shift-with-global-base",
    "D3",
    "a context shift rotates the stored keys of sliding layers with the base of global layers",
    part="store",
    effect=Effect.DIVERGES,
    wrap=on_store(ShiftWithGlobalBase),
)
