"""The order in which the program instances of a launch take effect, where a caller chooses it."""

from collections.abc import Callable

import torch

ProgramOrder = Callable[[int], torch.Tensor | None]
"""Given the number of program instances of a launch, returns a permutation of their ids, ``[N]``
int64, or None for the natural order. The interpreter runs instances one after another, so there a
permutation is a schedule; a compiled launch only renames its instances."""
