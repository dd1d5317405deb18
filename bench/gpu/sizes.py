"""The sizes that are timed: those of the aims, or tiny ones that an interpreter can run."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """The attention of one kind of layer."""

    name: str
    num_heads: int
    num_kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What is timed.

    Attributes:
        sliding: geometry of the sliding layers; `store_kv` and the windowed prefill use it, too.
        full: geometry of the full layers.
        store_rows: rows of `store_kv`.
        decode_context: keys of `paged_decode`.
        prefill_rows: rows of `paged_prefill`.
        window_context: positions that the last row of the windowed prefill comes after, and itself.
        window: positions that a row of it sees, itself included.
        digest_bytes: bytes of the tensor that is digested.
        copy_bytes: bytes of the copy that says what the memory can do.
        capture_rows: prompt rows of the capture benchmark.
        capture_chunk: rows of one of its steps.
        capture_rounds: pairs of runs of it.
    """

    sliding: Geometry
    full: Geometry
    store_rows: int
    decode_context: int
    prefill_rows: int
    window_context: int
    window: int
    digest_bytes: int
    copy_bytes: int
    capture_rows: int
    capture_chunk: int
    capture_rounds: int


FULL = Sizes(
    sliding=Geometry(name="sliding layer", num_heads=16, num_kv_heads=8, head_dim=256),
    full=Geometry(name="full layer", num_heads=16, num_kv_heads=1, head_dim=512),
    store_rows=4096,
    decode_context=32 * 1024,
    prefill_rows=2048,
    window_context=16 * 1024,
    window=1024,
    digest_bytes=256 * 2**20,
    copy_bytes=2**31,
    capture_rows=512,
    capture_chunk=64,
    capture_rounds=7,
)
"""Layers of gemma-4-12b; every tensor is larger than a cache, or flushed from it."""

TINY = Sizes(
    sliding=Geometry(name="sliding layer", num_heads=4, num_kv_heads=2, head_dim=16),
    full=Geometry(name="full layer", num_heads=4, num_kv_heads=1, head_dim=32),
    store_rows=5,
    decode_context=40,
    prefill_rows=6,
    window_context=24,
    window=8,
    digest_bytes=4096,
    copy_bytes=2**16,
    capture_rows=24,
    capture_chunk=8,
    capture_rounds=1,
)
