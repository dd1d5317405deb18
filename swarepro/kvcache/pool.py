"""The pool of one KV group: rows of K and V, addressed by slot."""

import math

import torch

from swarepro.errors import BackendError
from swarepro.kvcache.spec import KVGroupSpec


class KVPool:
    """K and V of all layers of one group.

    Attributes:
        spec: the group.
        kv: ``[L, S, 2, K, D]``, K then V of each slot; slot 0 is reserved in every pool.
    """

    def __init__(
        self, spec: KVGroupSpec, *, capacity: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        shape = (len(spec.layer_ids), capacity + 1, 2, spec.num_kv_heads, spec.head_dim)
        self.spec = spec
        try:
            self.kv = torch.zeros(shape, dtype=dtype, device=device)
        except RuntimeError as error:
            size = math.prod(shape) * dtype.itemsize
            reason = str(error).partition("\n")[0]
            raise BackendError(
                f"the {spec.group} KV pool of {capacity} positions takes {size / 2**30:.1f} GiB,"
                f" which cannot be had: {reason}",
                hint="choose a smaller capacity, or fewer layers",
            ) from None
        self._pool_layer = {layer: index for index, layer in enumerate(spec.layer_ids)}

    def layer(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return K and V of global ``layer``, each ``[S, K, D]``, as views."""
        kv = self.kv[self._pool_layer[layer]]
        return kv[:, 0], kv[:, 1]

    def gather(self, layer: int, slots: torch.Tensor) -> torch.Tensor:
        """Return K and V rows at ``slots [C]`` of global ``layer`` as a new ``[C, 2, K, D]``."""
        return self.kv[self._pool_layer[layer]].index_select(0, slots)

    def zero(self) -> None:
        """Set every row to zero."""
        self.kv.zero_()
