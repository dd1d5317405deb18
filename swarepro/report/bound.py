"""How surely a milestone of a comparison is where its kind of divergence begins."""

from typing import Literal

from swarepro.compare.types import BoundaryDiff, Divergence

Bound = Literal["exact", "here-or-before"]


def bound_of(divergence: Divergence, boundary: BoundaryDiff) -> Bound:
    """Return the bound of the first boundary, the first state or the first value.

    Raises:
        ValueError: ``boundary`` is none of them.
    """
    for milestone, exact in (
        (divergence.first, divergence.exact),
        (divergence.first_state, divergence.exact_state),
        (divergence.first_value, divergence.exact_value),
    ):
        if boundary == milestone:
            return "exact" if exact else "here-or-before"
    raise ValueError(f"{boundary.name} of step {boundary.step} is no milestone")
