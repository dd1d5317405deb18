"""The pool of one KV group: rows of K and V, addressed by slot."""

import torch

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
        self.kv = torch.zeros(shape, dtype=dtype, device=device)
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
