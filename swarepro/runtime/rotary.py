"""Rotary tables per layer kind."""

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


class RotaryTables:
    """Cosines and sines of a step's positions, computed once per layer kind and step."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._dtype = dtype
        self._device = device
        self._frequencies: dict[tuple[RopeSpec, int], torch.Tensor] = {}
        self._step: dict[tuple[RopeSpec, int], tuple[torch.Tensor, torch.Tensor]] = {}
        self._positions: torch.Tensor | None = None

    def at(
        self, positions: torch.Tensor, spec: RopeSpec, head_dim: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cos and sin of ``positions [T]``, each ``[T, head_dim / 2]`` in the run's dtype.

        Angles are float32, rounded to the dtype after cos and sin, as transformers does.
        """
        if positions is not self._positions:
            self._positions = positions
            self._step = {}
        key = (spec, head_dim)
        if key not in self._step:
            if key not in self._frequencies:
                self._frequencies[key] = inverse_frequencies(spec, head_dim).to(self._device)
            angles = positions.float()[:, None] * self._frequencies[key]
            self._step[key] = (angles.cos().to(self._dtype), angles.sin().to(self._dtype))
        return self._step[key]
