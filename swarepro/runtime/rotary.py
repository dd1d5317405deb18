"""Rotary tables per layer kind."""

from collections.abc import Callable

import torch

from swarepro.checkpoint.config import RopeKind, RopeSpec


def inverse_frequencies(spec: RopeSpec, head_dim: int) -> torch.Tensor:
    """Return ``[head_dim / 2]`` float32 on the CPU; see `RopeSpec` for the formula.

    Source: the functions ``_compute_*_rope_parameters`` of transformers' ``modeling_rope_utils``,
    whose float32 arithmetic it follows.
    """
    if spec.kind is RopeKind.PROPORTIONAL:
        rotated = int(spec.partial_rotary_factor * head_dim // 2)
    else:
        rotated = head_dim // 2
    exponents = torch.arange(0, 2 * rotated, 2, dtype=torch.float32) / head_dim
    frequencies = torch.zeros(head_dim // 2, dtype=torch.float32)
    frequencies[:rotated] = 1.0 / (spec.theta**exponents)
    if spec.kind is not RopeKind.DEFAULT:
        frequencies /= spec.factor
    return frequencies


Frequencies = Callable[[RopeSpec, int], torch.Tensor]


class RotaryTables:
    """Cosines and sines of a step's positions, computed once per layer kind and row block.

    Args:
        dtype: of what is returned.
        device: of what is returned.
        frequencies: as `inverse_frequencies`; asked once a step for each layer kind.
    """

    def __init__(
        self,
        dtype: torch.dtype,
        device: torch.device,
        frequencies: Frequencies = inverse_frequencies,
    ) -> None:
        self._dtype = dtype
        self._device = device
        self._ask = frequencies
        self._frequencies: dict[tuple[RopeSpec, int], torch.Tensor] = {}
        self._step: dict[
            tuple[int, RopeSpec, int], tuple[torch.Tensor, torch.Tensor, torch.Tensor]
        ] = {}

    def begin_step(self) -> None:
        """Forget the last step's positions, and the frequencies that it was given."""
        self._step.clear()
        self._frequencies.clear()

    def at(
        self, positions: torch.Tensor, spec: RopeSpec, head_dim: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cos and sin of ``positions [T]``, each ``[T, head_dim / 2]`` in the run's dtype.

        Angles are float32, rounded to the dtype after cos and sin, as transformers does.
        """
        key = (id(positions), spec, head_dim)  # what is kept keeps the id from being used again
        if key not in self._step:
            if (spec, head_dim) not in self._frequencies:
                self._frequencies[spec, head_dim] = self._ask(spec, head_dim).to(self._device)
            angles = positions.float()[:, None] * self._frequencies[spec, head_dim]
            cos, sin = angles.cos().to(self._dtype), angles.sin().to(self._dtype)
            self._step[key] = (positions, cos, sin)
        _, cos, sin = self._step[key]
        return cos, sin
