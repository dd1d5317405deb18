"""Legal ways to round otherwise: what a kernel may do, and what changes no mathematics."""

import torch

from swarepro.runtime.parts import PartWrapper
from swarepro.runtime.wrappers import OpsWrapper, on_ops

_PADDED_TO = 16


class PaddedRows(OpsWrapper):
    """Projections see a whole number of tiles: rows of zeros are added, and cut off again."""

    def linear(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Multiply ``x [T, N]``, padded to a multiple of 16 rows."""
        rows = x.shape[0]
        padded = x.new_zeros(-(-rows // _PADDED_TO) * _PADDED_TO, x.shape[1])
        padded[:rows] = x
        return super().linear(padded, weight)[:rows]


class SplitSums(OpsWrapper):
    """Projections add up two halves of their sums, each by itself, in float32 (split K)."""

    def linear(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Multiply ``x [T, N]`` in two parts of N, and round once."""
        half = x.shape[1] // 2
        first = super().linear(x[:, :half].float(), weight[:, :half].float())
        second = super().linear(x[:, half:].float(), weight[:, half:].float())
        return (first + second).to(x.dtype)


ROUNDINGS: dict[str, PartWrapper] = {
    "padded rows": on_ops(PaddedRows),
    "split sums": on_ops(SplitSums),
}
"""By name, each a wrapper of the parts of a stage."""
