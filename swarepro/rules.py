"""The rules of slot ownership, named by what breaks them; `swarepro.ownership` checks them."""

VIOLATION_KINDS = (
    "sentinel-store",
    "duplicate-slot-store",
    "unallocated-store",
    "foreign-store",
    "sentinel-read",
    "unwritten-read",
    "stale-generation-read",
    "wrong-position-read",
    "evicted-read",
    "row-changed-since-write",
    "double-free",
    "free-of-sentinel",
    "free-of-live",
    "free-while-mapped",
    "mapping-lost",
    "alloc-over-live-mapping",
    "stale-translation",
    "index-out-of-range",
    "position-gap",
    "exhaustion",
    "window-not-covered",
    "layer-table",
    "live-after-reset",
)
"""Every kind of violation that the shadow can report."""
