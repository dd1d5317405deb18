"""The hybrid KV cache of a stage: pools, slots, and who owns them."""

from swarepro.kvcache.allocator import SlotAllocator
from swarepro.kvcache.hybrid import HybridKVCache
from swarepro.kvcache.ownership import (
    VIOLATION_KINDS,
    OwnershipCheck,
    OwnershipReport,
    OwnershipViolation,
)
from swarepro.kvcache.pool import KVPool
from swarepro.kvcache.session import SwaSession
from swarepro.kvcache.spec import SENTINEL_SLOT, KVGroup, KVGroupSpec

__all__ = [
    "SENTINEL_SLOT",
    "VIOLATION_KINDS",
    "HybridKVCache",
    "KVGroup",
    "KVGroupSpec",
    "KVPool",
    "OwnershipCheck",
    "OwnershipReport",
    "OwnershipViolation",
    "SlotAllocator",
    "SwaSession",
]
