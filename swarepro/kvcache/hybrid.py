"""The KV cache of one stage: a pool per group, and the lifecycle of its slots."""

import torch

from swarepro.kvcache.lifecycle import SlotLifecycle
from swarepro.kvcache.pool import KVPool
from swarepro.kvcache.spec import KVGroup, KVGroupSpec


class HybridKVCache:
    """Pools and index tables of one stage.

    Index tables live on the CPU; what a kernel needs of them is copied to the device per step.

    Attributes:
        pools: by group; only groups that have layers in this stage.
        lifecycle: who owns which slot.
        device: of the pools.
        fill: what every row holds that nobody wrote.
    """

    def __init__(
        self,
        groups: tuple[KVGroupSpec, ...],
        *,
        capacity: int,
        swa_capacity: int,
        page_size: int,
        dtype: torch.dtype,
        device: torch.device,
        fill: float = 0.0,
    ) -> None:
        sizes = {KVGroup.FULL: capacity, KVGroup.SLIDING: swa_capacity}
        self.device = device
        self.fill = fill
        self.pools = {
            spec.group: KVPool(
                spec, capacity=sizes[spec.group], page_size=page_size, dtype=dtype, device=device
            )
            for spec in groups
        }
        sliding = self.pools.get(KVGroup.SLIDING)
        self.lifecycle = SlotLifecycle(
            capacity=capacity,
            swa_capacity=None if sliding is None else swa_capacity,
            page_size=page_size,
            window_left=None if sliding is None else sliding.spec.window_left,
        )
        self.clear()

    def clear(self) -> None:
        """Fill the pools. Who owns what is not touched: rebuild it afterwards, never before."""
        for pool in self.pools.values():
            pool.kv.fill_(self.fill)
