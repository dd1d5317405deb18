"""What the mapping was before: enough to tell an old translation from a wrong one."""

import torch

from swarepro.kvcache import SENTINEL_SLOT


class MappingHistory:
    """The mapping's generations.

    Attributes:
        generation: raised whenever an entry changes.
        previous: ``[2, full slots]`` int32: the live SWA slots that an entry led to last, before
            today's; 0 = none.
        changed: ``[full slots]`` int32: generation in which the entry changed last.
    """

    def __init__(self, num_entries: int) -> None:
        self.generation = 0
        self.previous = torch.full((2, num_entries), SENTINEL_SLOT, dtype=torch.int32)
        self.changed = torch.zeros(num_entries, dtype=torch.int32)

    @property
    def num_bytes(self) -> int:
        """Bytes that it takes."""
        return self.previous.nbytes + self.changed.nbytes

    def update(self, before: torch.Tensor, after: torch.Tensor) -> None:
        """Take note that the mapping went from one ``[full slots]`` int32 to the other."""
        changed = before != after
        if not bool(changed.any()):
            return
        self.generation += 1
        self.changed[changed] = self.generation
        was_live = changed & (before != SENTINEL_SLOT) & (before != self.previous[0])
        self.previous[1, was_live] = self.previous[0, was_live]
        self.previous[0, was_live] = before[was_live]

    def is_old(self, full_slots: torch.Tensor, translated: torch.Tensor) -> torch.Tensor:
        """Return ``[C]`` bool: whether a translation is what the mapping said before.

        None of them is to slot 0: that is not told from a mapping that was never made.
        """
        return (self.previous[:, full_slots] == translated).any(dim=0)
