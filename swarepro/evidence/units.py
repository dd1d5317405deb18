"""The units of work of a diagnosis, and the files that each must leave."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from swarepro.compare.arms import counterbalanced
from swarepro.evidence.schema import STATES, TRIALS, Plan

Kind = Literal["baseline", "observer", "replay", "factor"]
OBSERVED = ("off", "digest", "tensor")
"""Captures of the observer arms: nothing but the outputs, every digest, every tensor."""
NOTE = "note"


@dataclass(frozen=True, slots=True)
class Unit:
    """Work on one case that one process does in one go.

    Attributes:
        case: its name.
        kind: of work.
        number: which process of a baseline, or which factor of the plan; else 0.
    """

    case: str
    kind: Kind
    number: int = 0

    @property
    def folder(self) -> str:
        """Where its files are."""
        numbered = self.kind in ("baseline", "factor")
        return f"{TRIALS}/{self.case}/{self.kind}{f'-{self.number}' if numbered else ''}"

    def file(self, what: str) -> str:
        """Return the name of one of its files."""
        return f"{self.folder}/{what}.json"

    def trials(self, plan: Plan) -> tuple[str, ...]:
        """Return the names of its trials, in the order in which they run."""
        if self.kind == "baseline":
            first = self.number * plan.repeats
            return tuple(f"repeat-{index}" for index in range(first, first + plan.repeats))
        if self.kind == "observer":
            repeats = range(plan.processes * plan.repeats)
            return tuple(f"{arm}-{index}" for index in repeats for arm in OBSERVED)
        if self.kind == "replay":
            return tuple(f"trial-{index}" for index in range(plan.trials))
        return tuple(f"{arm}-{index}" for arm, index in counterbalanced(plan.trials))

    @property
    def has_note(self) -> bool:
        """Whether a note tells that it is done."""
        return self.kind in ("replay", "factor")

    def states(self) -> tuple[str, ...]:
        """Return the files of the state that it saves."""
        return states_of(self.case) if self.kind == "replay" else ()


def states_of(case: str) -> tuple[str, ...]:
    """Return the files of the frozen state of a case."""
    return tuple(f"{STATES}/{case}/{name}" for name in ("state.json", "state.safetensors"))


def first_units(plan: Plan) -> tuple[Unit, ...]:
    """Return what is always done: the baseline of every case, the observers of every anchor."""
    baselines = [
        Unit(case.name, "baseline", number)
        for case in plan.cases
        for number in range(plan.processes)
    ]
    return (*baselines, *(Unit(case.name, "observer") for case in plan.anchors))


def later_units(plan: Plan, reproduced: Iterable[str]) -> tuple[Unit, ...]:
    """Return what is done to the anchors whose values vary in their baseline."""
    return tuple(
        unit
        for case in reproduced
        for unit in (
            Unit(case, "replay"),
            *(Unit(case, "factor", number) for number in range(len(plan.factors))),
        )
    )


def index_of(trial: str) -> int:
    """Return the number at the end of a trial's name: it chooses its schedule."""
    return int(trial.rpartition("-")[2])


def named(units: Sequence[Unit]) -> str:
    """Return units in words."""
    return ", ".join(
        f"{unit.case} {unit.kind}{f' {unit.number}' if unit.kind in ('baseline', 'factor') else ''}"
        for unit in units
    )
