"""Interventions on scratch memory: what it holds before an operation fills it."""

from collections.abc import Callable

import torch

from swarepro.interventions.base import FACTORS, Factor, Means, Ran, Scope
from swarepro.runtime.parts import PartWrapper, Scratch, ScratchUse
from swarepro.runtime.wrappers import ScratchWrapper, on_scratch

_POISON = 1e4


class HoldsValue(ScratchWrapper):
    """Memory of partial results holds one value everywhere."""

    def __init__(self, inner: Scratch, value: float) -> None:
        super().__init__(inner)
        self._value = value

    def take(
        self, shape: tuple[int, ...], use: ScratchUse, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """Fill what is for partial results."""
        found = super().take(shape, use, dtype)
        return found.fill_(self._value) if use is ScratchUse.PARTIAL else found


def _holding(value: float) -> Callable[[Means], PartWrapper]:
    return lambda means: on_scratch(lambda inner: HoldsValue(inner, value))


def _applies(ran: Ran) -> str | None:
    if ScratchUse.PARTIAL in ran.scratch:
        return None
    return (
        f"the step takes no memory for partial results: {', '.join(sorted(ran.routes))} does"
        " without"
    )


for _name, _what, _value in (
    ("zero-scratch", "zeroed", 0.0),
    ("poison-scratch", f"filled with {_POISON:g}", _POISON),
):
    FACTORS.register(
        _name,
        Factor(
            name=_name,
            summary=f"memory of partial results is {_what}: it is read before it is written, if so",
            part="scratch",
            scope=Scope.TARGET,
            wrap=_holding(_value),
            applies=_applies,
        ),
    )
