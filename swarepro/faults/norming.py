"""Defects of RMSNorm: what is computed in the run's dtype, and what does not fit into it."""

import torch

from swarepro.faults.base import Effect, register
from swarepro.runtime.wrappers import OpsWrapper, on_ops

_LARGE = 6000.0


class VarianceInDtype(OpsWrapper):
    """The mean of the squares is taken in the run's dtype; all else is float32, as it should be."""

    def rms_norm(
        self,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        *,
        eps: float,
        adds_one: bool,
        residual: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Normalise by a mean square that was rounded."""
        mean = x.pow(2).mean(-1, keepdim=True)
        normed = x.float() * torch.rsqrt(mean.float() + eps)
        if weight is not None:
            normed = normed * (1.0 + weight.float() if adds_one else weight.float())
        out = normed.to(x.dtype)
        return out if residual is None else residual + out


class OnePlusWeightInDtype(OpsWrapper):
    """One is added to the weight in the run's dtype."""

    def rms_norm(
        self,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        *,
        eps: float,
        adds_one: bool,
        residual: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Normalise with a sum that was rounded."""
        if weight is not None and adds_one:
            weight, adds_one = 1.0 + weight, False
        return super().rms_norm(x, weight, eps=eps, adds_one=adds_one, residual=residual)


class LargeBranches(OpsWrapper):
    """What is added to the residual stream is as large as in checkpoints that need bfloat16.

    Their norms' weights are larger by thousands: the sum of a few such branches is beyond float16.
    """

    def rms_norm(
        self,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        *,
        eps: float,
        adds_one: bool,
        residual: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Normalise a branch to large values."""
        if weight is not None and residual is not None:
            weight = weight + _LARGE
        return super().rms_norm(x, weight, eps=eps, adds_one=adds_one, residual=residual)


register(
    "variance-in-dtype",
    "F3",
    "RMSNorm takes the mean of the squares in the run's dtype",
    part="ops",
    effect=Effect.DIVERGES,
    wrap=on_ops(VarianceInDtype),
)
register(
    "one-plus-weight-in-dtype",
    "F3",
    "RMSNorm adds one to its weight in the run's dtype",
    part="ops",
    effect=Effect.DIVERGES,
    wrap=on_ops(OnePlusWeightInDtype),
)
register(
    "large-branches",
    "F5",
    "what is added to the residual stream is too large for fp16: after a few layers it overflows",
    part="ops",
    effect=Effect.DIVERGES,
    wrap=on_ops(LargeBranches),
)
