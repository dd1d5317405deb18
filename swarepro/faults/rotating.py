"""Defects of rotary frequencies: those of one layer kind on the other."""

from collections.abc import Callable
from dataclasses import replace

import torch

from swarepro.checkpoint.config import RopeKind, RopeSpec
from swarepro.faults.base import Effect, register
from swarepro.runtime.parts import Ops
from swarepro.runtime.wrappers import OpsWrapper, on_ops

_LOCAL_THETA, _GLOBAL_THETA = 1e4, 1e6
_FACTOR = 8.0


class OtherRope(OpsWrapper):
    """Rotary frequencies of another spec than a layer's own."""

    def __init__(self, inner: Ops, change: Callable[[RopeSpec], RopeSpec]) -> None:
        super().__init__(inner)
        self._change = change

    def rotary_frequencies(self, rope: RopeSpec, head_dim: int) -> torch.Tensor:
        """Return those of the changed spec."""
        return super().rotary_frequencies(self._change(rope), head_dim)


def _without_factor(rope: RopeSpec) -> RopeSpec:
    return replace(rope, factor=1.0)


def _with_factor(rope: RopeSpec) -> RopeSpec:
    if rope.kind is not RopeKind.DEFAULT:
        return rope
    return replace(rope, kind=RopeKind.LINEAR, factor=_FACTOR)


def _register(name: str, summary: str, change: Callable[[RopeSpec], RopeSpec]) -> None:
    register(
        name,
        "F1",
        summary,
        part="ops",
        effect=Effect.DIVERGES,
        wrap=on_ops(lambda ops: OtherRope(ops, change)),
    )


_register(
    "rope-factor-missing",
    "the linear factor of full layers is left out: their positions are too far apart",
    _without_factor,
)
_register(
    "rope-factor-on-local",
    "the linear factor of full layers is applied to sliding layers too",
    _with_factor,
)
_register(
    "local-theta-on-all",
    "full layers are rotated with the base of sliding ones",
    lambda rope: replace(rope, theta=_LOCAL_THETA),
)
_register(
    "global-theta-on-all",
    "sliding layers are rotated with the base of full ones",
    lambda rope: replace(rope, theta=_GLOBAL_THETA),
)
