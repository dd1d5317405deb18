"""What the shadow knows of each slot of one pool."""

import torch

from swarepro.ownership.keys import NOBODY, positions_of, sessions_of

FREE, ALLOCATED, WRITTEN = 0, 1, 2


class SlotStates:
    """The slots of one group, by slot, on the CPU; 25 bytes each beside the digests.

    Attributes:
        status: ``[S]`` uint8, `FREE`, `ALLOCATED` or `WRITTEN` (by some layer).
        owner: ``[S]`` int64 key of the position that owns the slot, or `NOBODY`.
        previous: ``[S]`` int64 key of the one that owned it before, or `NOBODY`.
        generation: ``[S]`` int32, raised whenever the slot gets a new owner.
        write_step: ``[S]`` int32, step of the last write; -1 = none in this run.
        digests: ``[L, S]`` int64 of the row as it was written, by pool layer; 0 = not written in
            this generation.
    """

    def __init__(self, num_slots: int, num_layers: int) -> None:
        self.status = torch.zeros(num_slots, dtype=torch.uint8)
        self.owner = torch.full((num_slots,), NOBODY)
        self.previous = torch.full((num_slots,), NOBODY)
        self.generation = torch.zeros(num_slots, dtype=torch.int32)
        self.write_step = torch.full((num_slots,), -1, dtype=torch.int32)
        self.digests = torch.zeros(num_layers, num_slots, dtype=torch.int64)

    @property
    def num_slots(self) -> int:
        """Slots, the reserved ones among them."""
        return self.status.numel()

    @property
    def num_bytes(self) -> int:
        """Bytes of all but the digests."""
        held = (self.status, self.owner, self.previous, self.generation, self.write_step)
        return sum(tensor.nbytes for tensor in held)

    def give(self, slots: torch.Tensor, keys: torch.Tensor) -> None:
        """Make ``keys [N]`` own ``slots [N]``, all different: a new generation, not written."""
        self._remember(slots)
        self.owner[slots] = keys
        self.status[slots] = ALLOCATED
        self.generation[slots] += 1
        self.digests[:, slots] = 0

    def free(self, slots: torch.Tensor) -> None:
        """Make nobody own ``slots [N]``."""
        self._remember(slots)
        self.owner[slots] = NOBODY
        self.status[slots] = FREE

    def move(self, slots: torch.Tensor, keys: torch.Tensor) -> None:
        """Make ``keys [N]`` own ``slots [N]`` with what is in them: no new generation."""
        self.owner[slots] = keys

    def write(self, pool_layer: int, slots: torch.Tensor, digests: torch.Tensor, step: int) -> None:
        """Keep the digests ``[N]`` int64 of the rows that a layer wrote at ``slots [N]``."""
        self.digests[pool_layer, slots] = torch.where(digests == 0, 1, digests)
        self.status[slots] = WRITTEN
        self.write_step[slots] = step

    def owned_by(self, session: int, *, start: int = 0, end: int | None = None) -> torch.Tensor:
        """Return the slots ``[N]`` int64 that positions ``[start, end)`` of a session own."""
        position = positions_of(self.owner)
        owned = (sessions_of(self.owner) == session) & (position >= start)
        if end is not None:
            owned &= position < end
        return owned.nonzero().flatten()

    def last_keys(self, slots: torch.Tensor) -> torch.Tensor:
        """Return the keys of who owns ``slots [N]`` or owned them last; `NOBODY` if nobody did."""
        owner = self.owner[slots]
        return torch.where(owner == NOBODY, self.previous[slots], owner)

    def _remember(self, slots: torch.Tensor) -> None:
        self.previous[slots] = self.last_keys(slots)
