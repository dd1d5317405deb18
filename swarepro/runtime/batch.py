"""The metadata of one step: which rows, at which positions, in which slots.

positions   0 ...... visible_start ...... start ...... end
full group  | prefix                     | the step's T rows |
sliding         out of every window | prefix | T rows |
"""

from dataclasses import dataclass

import torch

from swarepro.kvcache import HybridKVCache, KVGroup
from swarepro.plan import Phase, Step
from swarepro.runtime.parts import Allocator


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSlots:
    """Slots of one KV group.

    Attributes:
        visible_start: first position that a query of this step can see.
        slots: ``[end - visible_start]`` int64 on the pools' device, the step's own rows last.
    """

    visible_start: int
    slots: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """One step as a stage sees it.

    Attributes:
        positions: ``[T]`` int64 on the device.
        full_slots: ``[end]`` int64 on the CPU: full slot of every position so far.
        swa_slots: ``[end]`` int64 on the CPU through the mapping; None without sliding layers.
        groups: slots that attention and store use, by group.
    """

    step: int
    phase: Phase
    session: int
    start: int
    end: int
    positions: torch.Tensor
    full_slots: torch.Tensor
    swa_slots: torch.Tensor | None
    groups: dict[KVGroup, GroupSlots]


def build_batch(step: Step, cache: HybridKVCache, allocator: Allocator | None) -> StepBatch:
    """Build the metadata of ``step``; the SWA slots must have been made to exist before.

    The whole prefix is translated through the mapping here, once.
    """
    (span,) = step.spans
    full_slots = cache.full_slots[: span.end]
    swa_slots = None if allocator is None else allocator.translate(full_slots)
    groups: dict[KVGroup, GroupSlots] = {}
    for group, pool in cache.pools.items():
        window_left = pool.spec.window_left
        visible_start = 0 if window_left is None else max(0, span.start - window_left)
        table = full_slots if group is KVGroup.FULL else swa_slots
        if table is None:
            raise RuntimeError("a stage with sliding layers has no allocator")
        groups[group] = GroupSlots(
            visible_start=visible_start, slots=table[visible_start:].to(cache.device)
        )
    return StepBatch(
        step=step.index,
        phase=step.phase,
        session=span.session,
        start=span.start,
        end=span.end,
        positions=torch.arange(span.start, span.end, device=cache.device),
        full_slots=full_slots,
        swa_slots=swa_slots,
        groups=groups,
    )
