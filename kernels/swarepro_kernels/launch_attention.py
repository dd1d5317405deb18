"""Launch configurations of the attention kernels, in explicit tables.

A row is chosen by head_dim, element size and the shared memory that a block may have: 99 KiB on
consumer cards, 227 KiB on data-centre cards. Nothing is timed or tuned when a kernel runs.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import torch
import triton

MIN_HEAD_DIM, MAX_HEAD_DIM = 16, 512
MIN_BLOCK = 16
"""The smallest extent that `tl.dot` takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConfig:
    """How one attention kernel is launched.

    Attributes:
        block_m: rows of a tile: (token, query head of one kv head) pairs.
        block_n: keys of a tile.
        num_warps: warps of a program.
        num_stages: depth of the load pipeline.
    """

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int

    def shared_bytes(self, head_dim: int, itemsize: int) -> int:
        """Return an upper estimate of the shared memory: Q, K and V in flight, probabilities."""
        tile = self.block_m * head_dim + 2 * self.num_stages * self.block_n * head_dim
        return (tile + self.block_m * self.block_n) * itemsize


def _config(block_m: int, block_n: int, num_warps: int, num_stages: int) -> AttentionConfig:
    return AttentionConfig(
        block_m=block_m, block_n=block_n, num_warps=num_warps, num_stages=num_stages
    )


# (padded head_dim, bytes of an element) -> configurations, the one with most shared memory first.
# Chosen by what the compiler reports for sm_90 and sm_86: shared memory, and few or no spills.
# Exact float32 products are not done by tensor cores: those tiles spill first, and are small.
CHUNK_CONFIGS: Mapping[tuple[int, int], tuple[AttentionConfig, ...]] = {
    (16, 2): (_config(128, 64, 4, 3),),
    (32, 2): (_config(128, 64, 4, 3),),
    (64, 2): (_config(128, 64, 8, 3),),
    (128, 2): (_config(128, 64, 8, 2), _config(64, 32, 4, 2)),
    (256, 2): (_config(128, 64, 8, 2), _config(64, 32, 8, 1)),
    (512, 2): (_config(64, 32, 8, 2), _config(32, 16, 8, 1)),
    (16, 4): (_config(64, 32, 4, 2),),
    (32, 4): (_config(64, 32, 4, 2),),
    (64, 4): (_config(64, 32, 4, 2),),
    (128, 4): (_config(16, 16, 4, 2),),
    (256, 4): (_config(16, 16, 4, 1),),
    (512, 4): (_config(16, 16, 4, 1),),
}
"""`paged_prefill` and `paged_attention`."""

DECODE_CONFIGS: Mapping[tuple[int, int], tuple[AttentionConfig, ...]] = {
    (16, 2): (_config(16, 128, 4, 2),),
    (32, 2): (_config(16, 128, 4, 2),),
    (64, 2): (_config(16, 64, 4, 3),),
    (128, 2): (_config(16, 64, 4, 2),),
    (256, 2): (_config(16, 32, 4, 3), _config(16, 32, 4, 2)),
    (512, 2): (_config(16, 32, 4, 2), _config(16, 16, 4, 2)),
    (16, 4): (_config(16, 64, 4, 2),),
    (32, 4): (_config(16, 64, 4, 2),),
    (64, 4): (_config(16, 32, 4, 2),),
    (128, 4): (_config(16, 16, 4, 2),),
    (256, 4): (_config(16, 16, 4, 2),),
    (512, 4): (_config(16, 16, 4, 1),),
}
"""`paged_decode`; the rows of a tile are the query heads of one kv head, 16 at a time."""

# The interpreter pays for every operation and not for its size: larger tiles, and no shared memory.
INTERPRETED_CHUNK = _config(64, 64, 1, 1)
INTERPRETED_DECODE = _config(16, 128, 1, 1)


def padded_head_dim(head_dim: int) -> int:
    """Return the power of two that a tile spans for ``head_dim``.

    Raises:
        ValueError: the kernels do not support this head_dim.
    """
    if head_dim % 16 or not MIN_HEAD_DIM <= head_dim <= MAX_HEAD_DIM:
        raise ValueError(
            f"head_dim {head_dim} has no attention launch configuration: "
            f"a multiple of 16 from {MIN_HEAD_DIM} to {MAX_HEAD_DIM} is needed"
        )
    return int(triton.next_power_of_2(head_dim))


def choose_config(
    table: Mapping[tuple[int, int], tuple[AttentionConfig, ...]],
    head_dim: int,
    dtype: torch.dtype,
    budget: int,
) -> AttentionConfig:
    """Return the first configuration of ``table`` that fits.

    Args:
        table: `CHUNK_CONFIGS` or `DECODE_CONFIGS`.
        head_dim: elements of a head.
        dtype: of queries, keys and values.
        budget: bytes of shared memory that one block may use.

    Raises:
        ValueError: none fits.
    """
    padded = padded_head_dim(head_dim)
    if dtype not in (torch.bfloat16, torch.float16, torch.float32):
        raise ValueError(
            f"{dtype} has no attention launch configuration: bfloat16, float16 or float32 is needed"
        )
    for config in table[padded, dtype.itemsize]:
        if config.shared_bytes(padded, dtype.itemsize) <= budget:
            return config
    smallest = min(c.shared_bytes(padded, dtype.itemsize) for c in table[padded, dtype.itemsize])
    raise ValueError(
        f"head_dim {head_dim} in {dtype} has no attention launch configuration for {budget} bytes "
        f"of shared memory: the smallest needs {smallest}"
    )


def shared_budget(device: torch.device) -> int:
    """Return the bytes of shared memory that one block may use on a CUDA ``device``."""
    index = torch.cuda.current_device() if device.index is None else device.index
    return int(triton.runtime.driver.active.utils.get_device_properties(index)["max_shared_mem"])


def chunk_config(head_dim: int, dtype: torch.dtype, device: torch.device) -> AttentionConfig:
    """Return the configuration of `paged_prefill` and `paged_attention`; raises `ValueError`."""
    if device.type == "cpu":
        choose_config(CHUNK_CONFIGS, head_dim, dtype, 1 << 30)
        return INTERPRETED_CHUNK
    return choose_config(CHUNK_CONFIGS, head_dim, dtype, shared_budget(device))


def decode_config(head_dim: int, dtype: torch.dtype, device: torch.device) -> AttentionConfig:
    """Return the configuration of `paged_decode`; raises `ValueError`."""
    if device.type == "cpu":
        choose_config(DECODE_CONFIGS, head_dim, dtype, 1 << 30)
        return INTERPRETED_DECODE
    return choose_config(DECODE_CONFIGS, head_dim, dtype, shared_budget(device))


def describe_attention_launches(
    head_dim: int, dtype: torch.dtype, device: torch.device
) -> dict[str, dict[str, int]]:
    """Return the configuration of every attention kernel, by its name, for a manifest."""
    chunk = asdict(chunk_config(head_dim, dtype, device))
    return {
        "paged_prefill": chunk,
        "paged_attention": dict(chunk),
        "paged_decode": asdict(decode_config(head_dim, dtype, device)),
    }


def rows_block(config: AttentionConfig, rows: int) -> int:
    """Return the block of ``rows`` rows: the table's, or less where there are fewer rows."""
    return min(config.block_m, max(MIN_BLOCK, int(triton.next_power_of_2(rows))))
