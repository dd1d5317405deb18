"""The pool of one KV group: rows of K and V, addressed by slot."""

import math

import torch

from swarepro.errors import BackendError
from swarepro.kvcache.spec import KVGroupSpec


class KVPool:
    """K and V of all layers of one group.

    Attributes:
        spec: the group.
        kv: ``[L, S, 2, K, D]``, K then V of each slot; page 0 is reserved in every pool.
    """

    def __init__(
        self,
        spec: KVGroupSpec,
        *,
        capacity: int,
        page_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        slots = capacity + page_size
        shape = (len(spec.layer_ids), slots, 2, spec.num_kv_heads, spec.head_dim)
        self.spec = spec
        try:
            self.kv = torch.empty(shape, dtype=dtype, device=device)
        except RuntimeError as error:
            size = math.prod(shape) * dtype.itemsize
            reason = str(error).partition("\n")[0]
            raise BackendError(
                f"the {spec.group} KV pool of {capacity} positions takes {size / 2**30:.1f} GiB,"
                f" which cannot be had: {reason}",
                hint="choose a smaller capacity, or fewer layers",
            ) from None

    @property
    def num_slots(self) -> int:
        """Slots, the reserved ones among them."""
        return self.kv.shape[1]

    def layer(self, pool_layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return K and V of a pool layer, each ``[S, K, D]``, as views."""
        kv = self.kv[pool_layer]
        return kv[:, 0], kv[:, 1]

    def gather(self, pool_layer: int, slots: torch.Tensor) -> torch.Tensor:
        """Return K and V rows at ``slots [C]`` of a pool layer as a new ``[C, 2, K, D]``."""
        return self.kv[pool_layer].index_select(0, slots)

    def restore(self, kv: torch.Tensor) -> int:
        """Make the rows equal to ``kv``, of the pool's shape and dtype; return how many differed.

        Rows are compared by their bits, and only those that differ are copied.
        """
        bits = _BITS[self.kv.element_size()]
        differs = (self.kv.view(bits) != kv.view(bits)).flatten(2).any(-1)
        self.kv[differs] = kv[differs]
        return int(differs.sum())


_BITS = {2: torch.int16, 4: torch.int32}
"""Integers of the size of a value."""
