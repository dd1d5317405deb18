"""Legal orders of the concurrent program instances of a launch.

On a GPU the hardware chooses among them; on a CPU one is chosen here, so that a store which
depends on the order shows it. A correct store gives the same bytes under every one.
"""

import re
from dataclasses import dataclass

import numpy as np
import torch

from swarepro.backend import TritonMode
from swarepro.errors import UsageError
from swarepro.runtime.parts import Schedule


@dataclass(frozen=True, slots=True)
class NaturalOrder:
    """No order of its own: 0, 1, 2, ... one after another, or what the hardware makes of it.

    For a store: row by row, head by head, K before V.
    """

    def order(self, num_programs: int, *key: int) -> torch.Tensor | None:
        """Return None."""
        return None


@dataclass(frozen=True, slots=True)
class SeededOrder:
    """A permutation drawn from a seed and the launch's key."""

    seed: int

    def order(self, num_programs: int, *key: int) -> torch.Tensor | None:
        """Return the permutation; the same arguments give the same one on every machine."""
        entropy = (self.seed, *key)
        bits = np.random.Philox(np.random.SeedSequence(entropy)).random_raw(num_programs)
        return torch.from_numpy(np.argsort(bits, kind="stable"))


class ChosenSchedule:
    """A schedule that can be changed between two steps.

    Attributes:
        current: what orders the next launch.
    """

    def __init__(self, current: Schedule) -> None:
        self.current = current

    def order(self, num_programs: int, *key: int) -> torch.Tensor | None:
        """As the current schedule."""
        return self.current.order(num_programs, *key)


def resolve_schedule(text: str, *, triton: TritonMode) -> str:
    """Return the schedule that ``text`` means where kernels run as ``triton`` says.

    ``auto`` is ``hardware`` for compiled kernels, else ``program``.

    Raises:
        UsageError: no such schedule, or one that cannot be had there.
    """
    if text == "auto":
        return "hardware" if triton == "compiled" else "program"
    parse_schedule(text)
    if (text == "hardware") != (triton == "compiled"):
        where, known = (
            ("compiled", "hardware")
            if triton == "compiled"
            else ("not compiled", "program or seeded:N")
        )
        raise UsageError(
            f"schedule {text!r} cannot be had where kernels are {where}", hint=f"use {known}"
        )
    return text


def parse_schedule(text: str) -> Schedule:
    """Return the schedule ``program``, ``hardware`` or ``seeded:N``; UsageError for another."""
    if text in ("program", "hardware"):
        return NaturalOrder()
    match = re.fullmatch(r"seeded:(\d{1,18})", text)
    if match is None:
        raise UsageError(
            f"unknown schedule {text!r}", hint="known: auto, program, hardware, seeded:N"
        )
    return SeededOrder(int(match.group(1)))
