"""The shape of a hybrid KV cache."""

from dataclasses import dataclass
from enum import StrEnum

SENTINEL_SLOT = 0
"""SWA slot 0 means "no live slot": the allocator hands out 1, 2, 3, ..."""


class KVGroup(StrEnum):
    """Layers that share a pool and an index space."""

    FULL = "full"
    SLIDING = "sliding"


@dataclass(frozen=True, slots=True, kw_only=True)
class KVGroupSpec:
    """One KV group of a stage.

    Attributes:
        layer_ids: global layer ids, ascending; place in it = pool layer.
        sliding_window: tokens visible including the query itself; None for the full group.
    """

    group: KVGroup
    layer_ids: tuple[int, ...]
    num_kv_heads: int
    head_dim: int
    sliding_window: int | None

    @property
    def window_left(self) -> int | None:
        """Keys visible to the left of the query; None = all."""
        return None if self.sliding_window is None else self.sliding_window - 1
