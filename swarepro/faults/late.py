"""A defect of timing: a row that is written late."""

from dataclasses import replace

import torch

from swarepro.faults.base import Effect, register
from swarepro.runtime.parts import Schedule, StageParts, Store, StoreContext

_SALT = 0x1A7E


class LateStoreRow:
    """The last row of a store lands when its layer is stored to next, after its own attention.

    Whether it does is up to the schedule, which draws it for each step and layer: about half of the
    seeds have it late, ``program`` and ``hardware`` never. Nothing is lost: a late row is there
    before another step reads it, and after a reset it lands where nobody has stored yet.
    """

    def __init__(self, inner: Store, schedule: Schedule) -> None:
        self._inner = inner
        self._schedule = schedule
        self._late: dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}

    def store(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        slots: torch.Tensor,
        context: StoreContext,
    ) -> None:
        """Write the layer's late row, then the rows; put the last one off if it is drawn."""
        if context.layer in self._late:
            slot, late_k, late_v = self._late.pop(context.layer)
            k_cache[slot], v_cache[slot] = late_k, late_v
        order = self._schedule.order(2, _SALT, context.step, context.layer)
        if order is not None and int(order[0]) == 1:
            self._late[context.layer] = slots[-1].clone(), k[-1].clone(), v[-1].clone()
            k, v, slots = k[:-1], v[:-1], slots[:-1]
        if slots.numel():
            self._inner.store(k, v, k_cache, v_cache, slots, context)


def _wrap(parts: StageParts) -> StageParts:
    return replace(parts, store=LateStoreRow(parts.store, parts.schedule))


register(
    "late-store-row",
    "E4",
    "the last row of a store is written after the attention that reads it; a seeded schedule draws"
    " when, `program` and `hardware` never do",
    part="store",
    effect=Effect.DIVERGES,
    wrap=_wrap,
)
