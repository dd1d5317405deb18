"""Legal orders of a store's concurrent program instances.

On a GPU the hardware chooses among them; on a CPU one is chosen here, so that a store which
depends on the order shows it. A correct store gives the same bytes under every one.
"""

import re
from dataclasses import dataclass

import numpy as np
import torch

from swarepro.errors import UsageError
from swarepro.runtime.parts import Schedule, StoreContext


@dataclass(frozen=True, slots=True)
class ProgramOrder:
    """0, 1, 2, ...: row by row, head by head, K before V."""

    def order(self, num_programs: int, context: StoreContext) -> torch.Tensor | None:
        """Return None: the natural order."""
        return None


@dataclass(frozen=True, slots=True)
class SeededOrder:
    """A permutation drawn from a seed, the session, the step and the layer."""

    seed: int

    def order(self, num_programs: int, context: StoreContext) -> torch.Tensor | None:
        """Return the permutation; the same arguments give the same one on every machine."""
        entropy = (self.seed, context.session, context.step, context.layer)
        bits = np.random.Philox(np.random.SeedSequence(entropy)).random_raw(num_programs)
        return torch.from_numpy(np.argsort(bits, kind="stable"))


def parse_schedule(text: str) -> Schedule:
    """Return the schedule called ``program`` or ``seeded:N``; raise UsageError for another."""
    if text == "program":
        return ProgramOrder()
    match = re.fullmatch(r"seeded:(\d{1,18})", text)
    if match is None:
        raise UsageError(f"unknown schedule {text!r}", hint="known: program, seeded:N")
    return SeededOrder(int(match.group(1)))
