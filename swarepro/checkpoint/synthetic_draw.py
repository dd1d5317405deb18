"""Seeded weights with the same bytes on every machine and with every version of numpy and torch.

Only Philox's raw bits (a stream that numpy guarantees), integer sums, IEEE multiplication, addition
and square root are used: no distribution of numpy's or torch's, no function of the C library.
"""

import hashlib
import math

import numpy as np
import torch

# A matrix beyond this many values is tiled, see `_draw_tiled`; drawing it in full takes minutes.
LARGEST_FULL_DRAW = 2**22
_NUM_WINDOWS = 2**20
# The sum of four uniform 16-bit integers: its mean, and the square root of its variance.
_LANES = 4
_MEAN = _LANES * 65535 // 2
_DEVIATION = math.sqrt(_LANES * (2**32 - 1) / 12)


def draw_tensor(
    key: str, shape: tuple[int, ...], *, mean: float, std: float, device: torch.device
) -> torch.Tensor:
    """Return a bell-shaped random tensor (Irwin-Hall of four, so within 3.5 ``std`` of ``mean``).

    Args:
        key: names the tensor; the values depend on it alone (and on shape, mean and std).
        shape: of the result.
        mean: of the values.
        std: of the values.
        device: of the result.

    Returns:
        ``shape``, bfloat16, contiguous.
    """
    size = math.prod(shape)
    if len(shape) == 2 and size > LARGEST_FULL_DRAW:
        return _draw_tiled(key, shape[0], shape[1], mean=mean, std=std, device=device)
    return _draw(key, size, mean=mean, std=std).reshape(shape).to(device)


def _draw_tiled(
    key: str, rows: int, columns: int, *, mean: float, std: float, device: torch.device
) -> torch.Tensor:
    """Fill a big matrix with windows of one random strip of 2**20 + ``columns`` values.

    Row ``r`` is the window at ``(r * stride + first) mod 2**20`` with a seeded odd stride, so up to
    2**20 rows differ from one another, and columns are as random as the strip.
    """
    strip = _draw(key, _NUM_WINDOWS + columns - 1, mean=mean, std=std).to(device)
    stride, first = (int(value) for value in _raw_bits(f"{key}:windows", 2))
    starts = (
        torch.arange(rows) * (stride % _NUM_WINDOWS | 1) + first % _NUM_WINDOWS
    ) % _NUM_WINDOWS
    windows = strip.as_strided((_NUM_WINDOWS, columns), (1, 1))
    return windows.index_select(0, starts.to(device))


def _draw(key: str, size: int, *, mean: float, std: float) -> torch.Tensor:
    """Return ``[size]`` values in bfloat16, on the CPU."""
    lanes = _raw_bits(key, size).view(np.uint16).reshape(size, _LANES)
    centred = lanes.sum(axis=1, dtype=np.int64) - _MEAN
    values = (centred.astype(np.float64) * (std / _DEVIATION) + mean).astype(np.float32)
    return torch.from_numpy(values).to(torch.bfloat16)


def _raw_bits(key: str, size: int) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    digest = hashlib.blake2b(key.encode(), digest_size=16).digest()
    generator = np.random.Philox(key=int.from_bytes(digest, "little"))
    return np.asarray(generator.random_raw(size), dtype=np.uint64).reshape(size)
