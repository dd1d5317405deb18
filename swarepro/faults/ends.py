"""Defects at the ends of the model: the embedding's scale, the head, and its softcap."""

import torch

from swarepro.faults.base import Effect, register
from swarepro.runtime.parts import PartWrapper
from swarepro.runtime.wrappers import OpsWrapper, on_ops

_INITIAL_DEVIATION = 0.02


class EmbedScaleMissing(OpsWrapper):
    """The embedding's rows are used as they are."""

    def embed(self, ids: torch.Tensor, weight: torch.Tensor, *, scale: float) -> torch.Tensor:
        """Return rows without their scale."""
        return super().embed(ids, weight, scale=1.0)


class EmbedScaleTwice(OpsWrapper):
    """The embedding was scaled when it was loaded, and its rows are scaled again."""

    def embed(self, ids: torch.Tensor, weight: torch.Tensor, *, scale: float) -> torch.Tensor:
        """Return rows, scaled twice."""
        rows = super().embed(ids, weight, scale=scale)
        return rows * torch.tensor(scale, dtype=rows.dtype, device=rows.device)


class EmbedScaleNotRounded(OpsWrapper):
    """The scale is used in float32, where the checkpoint was trained with the rounded one."""

    def embed(self, ids: torch.Tensor, weight: torch.Tensor, *, scale: float) -> torch.Tensor:
        """Return rows, scaled in float32 and rounded once."""
        return (torch.nn.functional.embedding(ids, weight).float() * scale).to(weight.dtype)


class HeadNotTied(OpsWrapper):
    """The head is not tied to the embedding, and holds what it was initialised with."""

    def unembed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Multiply by random values: the same ones in every step."""
        drawn = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
        return super().unembed(x, (drawn * _INITIAL_DEVIATION).to(weight))


class FinalSoftcapDropped(OpsWrapper):
    """Logits are not capped."""

    def softcap(self, x: torch.Tensor, cap: float) -> torch.Tensor:
        """Return ``x``."""
        return x


class SamplerTakesLastTie(OpsWrapper):
    """A sampler whose filter keeps every token as large as the largest, and takes the last of them.

    Nothing is wrong with the model: every boundary is equal, and so are the logits.
    """

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the largest, of ties the last."""
        last = logits.shape[-1] - 1
        return last - super().choose(logits.flip(-1))


def _register(name: str, mechanism: str, summary: str, wrap: PartWrapper) -> None:
    register(name, mechanism, summary, part="ops", effect=Effect.DIVERGES, wrap=wrap)


_register(
    "embed-scale-missing",
    "F3",
    "the embedding's rows are not scaled",
    on_ops(EmbedScaleMissing),
)
_register(
    "embed-scale-twice",
    "F3",
    "the embedding's rows are scaled twice",
    on_ops(EmbedScaleTwice),
)
_register(
    "embed-scale-not-rounded",
    "F3",
    "the embedding's scale is not rounded to the run's dtype before it is used",
    on_ops(EmbedScaleNotRounded),
)
_register(
    "head-not-tied",
    "",
    "the head is not tied to the embedding: it holds what it was initialised with",
    on_ops(HeadNotTied),
)
_register(
    "final-softcap-dropped",
    "F2",
    "logits are not capped",
    on_ops(FinalSoftcapDropped),
)
_register(
    "sampler-takes-last-tie",
    "E6",
    "of several largest logits the last is taken: another token, and no defect of the model",
    on_ops(SamplerTakesLastTie),
)
