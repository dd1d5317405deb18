"""Hands out SWA slots, each once, in a fixed order."""

import torch

from swarepro.errors import CapacityError


class SlotAllocator:
    """A free list of SWA slots 1, 2, ..., capacity; slot 0 is the sentinel and never on it.

    Attributes:
        capacity: number of slots that can be live at once.
        free_list: ``[capacity]`` int64; the entries from `num_live` on are free, in the order in
            which they will be handed out.
        num_live: slots handed out.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.free_list = torch.empty(capacity, dtype=torch.int64)
        self.num_live = 0
        self.rebuild()

    @property
    def num_free(self) -> int:
        """Slots that can still be handed out."""
        return self.capacity - self.num_live

    def rebuild(self) -> None:
        """Make every slot free again, in the order 1, 2, 3, ..."""
        torch.arange(1, self.capacity + 1, out=self.free_list)
        self.num_live = 0

    def allocate(self, count: int) -> torch.Tensor:
        """Hand out ``count`` slots as ``[count]`` int64.

        Raises:
            CapacityError: fewer are free; nothing was handed out.
        """
        if count > self.num_free:
            raise CapacityError(
                f"the SWA pool needs {count} more slots and has {self.num_free} free"
                f" of {self.capacity}",
                hint="raise the SWA capacity, or shorten the session",
            )
        slots = self.free_list[self.num_live : self.num_live + count].clone()
        self.num_live += count
        return slots
