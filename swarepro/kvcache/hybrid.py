"""The KV cache of one stage: a pool per group, one page table, one SWA session."""

import torch

from swarepro.kvcache.pool import KVPool
from swarepro.kvcache.session import SwaSession
from swarepro.kvcache.spec import KVGroup, KVGroupSpec


class HybridKVCache:
    """Pools and index tables of one stage.

    Index tables live on the CPU; what a kernel needs of them is copied to the device per step.

    Attributes:
        pools: by group; only groups that have layers in this stage.
        full_slots: ``[capacity]`` int64, the page table of the session: position -> full slot.
        session: owner of the SWA slots; None in a stage without sliding layers.
        device: of the pools.
    """

    def __init__(
        self,
        groups: tuple[KVGroupSpec, ...],
        *,
        capacity: int,
        swa_capacity: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        sizes = {KVGroup.FULL: capacity, KVGroup.SLIDING: swa_capacity}
        self.device = device
        self.pools = {
            spec.group: KVPool(spec, capacity=sizes[spec.group], dtype=dtype, device=device)
            for spec in groups
        }
        self.full_slots = torch.arange(1, capacity + 1)
        self.session = (
            SwaSession(full_slots=self.full_slots, swa_capacity=swa_capacity)
            if KVGroup.SLIDING in self.pools
            else None
        )

    def zero(self) -> None:
        """Zero the pools. The session is not touched: rebuild it afterwards, never before."""
        for pool in self.pools.values():
            pool.zero()
