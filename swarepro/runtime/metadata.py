"""At which positions rows are."""

import torch

from swarepro.plan import Span


class ContiguousPositions:
    """The positions of a span, as the runtime computes them."""

    def positions(self, span: Span) -> torch.Tensor:
        """Return ``start, ..., end - 1`` as ``[T]`` int64."""
        return torch.arange(span.start, span.end)
