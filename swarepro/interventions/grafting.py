"""The intervention that puts another run's tensor in the place of a boundary."""

from collections.abc import Mapping
from dataclasses import replace

import torch

from swarepro.interventions.base import Factor, Scope
from swarepro.points import CapturePoint
from swarepro.runtime.parts import PartWrapper, StageParts, Tap
from swarepro.runtime.wrappers import TapWrapper

GRAFT = "graft:"
"""How the name of a graft begins; ``POINT=BUNDLE`` follows."""


class GraftTap(TapWrapper):
    """Overwrites the live tensor of one boundary, then captures it.

    Args:
        inner: captures.
        point: of the boundary.
        layer: global layer id, or None.
        tensors: by session, of the boundary's shape and dtype.
    """

    def __init__(
        self,
        inner: Tap,
        point: CapturePoint,
        layer: int | None,
        tensors: Mapping[int, torch.Tensor],
    ) -> None:
        super().__init__(inner)
        self._place = point.name, layer
        self._tensors = tensors

    def wants(self, point: CapturePoint, layer: int | None = None) -> bool:
        """The boundary is wanted; else as the wrapped tap."""
        return (point.name, layer) == self._place or super().wants(point, layer)

    def __call__(
        self,
        point: CapturePoint,
        tensor: torch.Tensor,
        layer: int | None = None,
        *,
        session: int,
        row_start: int | None = None,
    ) -> None:
        """Put the other run's values into ``tensor`` where it is the boundary's."""
        if (point.name, layer) == self._place and session in self._tensors:
            tensor.copy_(self._tensors[session])
        super().__call__(point, tensor, layer, session=session, row_start=row_start)


def graft_factor(
    name: str,
    point: CapturePoint,
    layer: int | None,
    tensors: Mapping[int, Mapping[int, torch.Tensor]],
) -> Factor:
    """Return the factor that grafts ``tensors`` into the target step.

    Args:
        name: of the factor.
        point: of the boundary; what it captures must be what the run goes on with.
        layer: global layer id, or None.
        tensors: by the first layer of the stage, then by session.
    """

    def wrap(parts: StageParts) -> StageParts:
        first = parts.layers.places()[0].layer
        own = tensors.get(first, {})
        return replace(parts, tap=GraftTap(parts.tap, point, layer, own))

    def wrapper(means: object) -> PartWrapper:
        return wrap

    return Factor(
        name=name,
        summary="another run's tensor replaces this boundary: the cause lies before it, if so",
        part="tap",
        scope=Scope.TARGET,
        wrap=wrapper,
    )
