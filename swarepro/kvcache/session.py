"""Who owns which SWA slot: the lifecycle of one session on one stage.

The stage runtime stands where an engine's scheduler would: before a call builds its attention
metadata, positions ``[0, start + count)`` must own slots. One frontier, ``allocated``:

    positions   0 ........ allocated ........ capacity
                | own a slot | own none      |
"""

import torch

from swarepro.errors import PositionGapError
from swarepro.kvcache.allocator import SlotAllocator
from swarepro.kvcache.spec import SENTINEL_SLOT


class SwaSession:
    """The SWA allocation of the current session.

    Attributes:
        full_slots: ``[capacity]`` int64, the page table: full-pool slot of each position.
        mapping: ``full_to_swa_index_mapping``, ``[capacity + 1]`` int64 by full slot; 0 = no live
            slot.
        allocator: the free list.
        allocated: frontier; positions below it own slots.
    """

    def __init__(self, *, full_slots: torch.Tensor, swa_capacity: int) -> None:
        self.full_slots = full_slots
        self.mapping = torch.full((full_slots.numel() + 1,), SENTINEL_SLOT)
        self.allocator = SlotAllocator(swa_capacity)
        self.allocated = 0

    def ensure(self, start: int, count: int) -> None:
        """Make positions ``[0, start + count)`` own SWA slots; what is owned stays as it is.

        Raises:
            PositionGapError: the call begins beyond the frontier.
            CapacityError: too few slots are free.

        After either, frontier, mapping and free list are as before.
        """
        if start > self.allocated:
            raise PositionGapError(
                f"the call begins at position {start}, but only positions below {self.allocated}"
                " own SWA slots",
                hint="positions of a session have to be computed in order, without a gap",
            )
        end = start + count
        if end <= self.allocated:
            return
        slots = self.allocator.allocate(end - self.allocated)
        self.mapping[self.full_slots[self.allocated : end]] = slots
        self.allocated = end

    def translate(self, full_slots: torch.Tensor) -> torch.Tensor:
        """Return the SWA slots of ``full_slots [C]`` through the mapping, ``[C]`` int64."""
        return self.mapping[full_slots]

    def reset(self) -> None:
        """Forget the session: no slot is live, no position mapped. Safe to call twice."""
        self.mapping.fill_(SENTINEL_SLOT)
        self.allocator.rebuild()
        self.allocated = 0
