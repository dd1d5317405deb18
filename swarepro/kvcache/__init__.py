"""The hybrid KV cache of a stage: pools, slots, and the lifecycle that hands them out."""

from swarepro.kvcache.allocator import PageAllocator, num_pages_for, slots_of
from swarepro.kvcache.hybrid import HybridKVCache
from swarepro.kvcache.lifecycle import SlotLifecycle
from swarepro.kvcache.pool import KVPool
from swarepro.kvcache.spec import SENTINEL_SLOT, KVGroup, KVGroupSpec
from swarepro.kvcache.tables import SessionTable

__all__ = [
    "SENTINEL_SLOT",
    "HybridKVCache",
    "KVGroup",
    "KVGroupSpec",
    "KVPool",
    "PageAllocator",
    "SessionTable",
    "SlotLifecycle",
    "num_pages_for",
    "slots_of",
]
