"""What benchmarks share: their inputs, and the row of a ratio."""

from dataclasses import dataclass
from typing import Any

import torch

from bench.gpu.report import Row
from bench.gpu.sizes import Geometry, Sizes
from bench.gpu.timer import Timer

DTYPE = torch.bfloat16
TOLERANCE = 0.05
"""Of outputs of attention over values of unit variance in bfloat16, on any route."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What every benchmark is given."""

    device: torch.device
    timer: Timer
    sizes: Sizes

    def normal(self, *shape: int) -> torch.Tensor:
        """Return seeded values of unit variance, ``shape``, bfloat16."""
        generator = torch.Generator(self.device).manual_seed(len(shape) + sum(shape))
        return torch.randn(shape, dtype=DTYPE, device=self.device, generator=generator)

    def permutation(self, num: int) -> torch.Tensor:
        """Return a seeded permutation ``[num]``, int64."""
        generator = torch.Generator().manual_seed(0)
        return torch.randperm(num, generator=generator).to(self.device)

    def pool(self, num_slots: int, geometry: Geometry) -> tuple[torch.Tensor, torch.Tensor]:
        """Return K and V ``[S, K, D]`` of a pool, with the strides of the runtime's."""
        kv = self.normal(num_slots, 2, geometry.num_kv_heads, geometry.head_dim)
        return kv[:, 0], kv[:, 1]


def ratio_row(
    what: str,
    ratio: float,
    detail: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    figures: dict[str, Any],
) -> Row:
    """Return the row of one ratio; an aim is a bound on one side, or there is none."""
    aim, ok = "", None
    if at_least is not None:
        aim, ok = f"at least {at_least:.2f}", ratio >= at_least
    elif at_most is not None:
        aim, ok = f"at most {at_most:.2f}", ratio <= at_most
    return Row(
        part="speed",
        what=what,
        seen=f"{ratio:.2f} ({detail})",
        aim=aim,
        ok=ok,
        judged=False,
        figures={"ratio": ratio, **figures},
    )


def check_close(what: str, found: torch.Tensor, wanted: torch.Tensor) -> None:
    """Raise RuntimeError when ``found`` is not what ``wanted`` says."""
    worst = (found.float() - wanted.float()).abs().max().item()
    if not worst <= TOLERANCE:  # NaN is not
        raise RuntimeError(f"{what}: off by {worst:g}; {TOLERANCE} is allowed")


def gb_per_s(num_bytes: int, milliseconds: float) -> float:
    """Return bandwidth in 10^9 bytes a second."""
    return num_bytes / milliseconds / 1e6
