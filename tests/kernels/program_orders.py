"""Program orders for kernel tests."""

import torch

from swarepro_kernels.order import ProgramOrder


def shuffled(seed: int) -> ProgramOrder:
    """Return an order drawn from ``seed``."""
    return lambda num_programs: torch.randperm(
        num_programs, generator=torch.Generator().manual_seed(seed)
    )


def backwards(num_programs: int) -> torch.Tensor:
    """Return the natural order reversed."""
    return torch.arange(num_programs).flip(0)


ORDERS = [backwards, *(shuffled(seed) for seed in range(4))]
