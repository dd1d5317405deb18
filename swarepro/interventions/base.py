"""What an intervention is: one variable changed against an unchanged control."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from swarepro.errors import UsageError
from swarepro.plan import RunPlan, Step
from swarepro.registry import Registry
from swarepro.runtime.parts import Attention, PartWrapper, Schedule, ScratchUse


class Scope(StrEnum):
    """From which state the trials of a factor begin."""

    START = "start"  # the empty state: the factor is there from the first step on
    TARGET = "target"  # the state before the target step: the factor is there in that step alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What the target step did in the control; applicability is judged from it.

    Attributes:
        routes: names of the attention implementations that ran.
        scratch: what scratch memory was taken for.
        has_sliding: whether a stage has sliding layers.
        schedule: that ordered the control's launches, of its first trial.
        device: it ran on, e.g. ``cpu``.
        dtype: of weights and activations, as in a case.
        plan: of the whole run.
        step: the target step's index.
        scripted: whether the case lays its steps out by a script.
    """

    routes: frozenset[str]
    scratch: frozenset[ScratchUse]
    has_sliding: bool
    schedule: str
    device: str
    dtype: str
    plan: RunPlan
    step: int
    scripted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a factor needs and cannot make itself.

    Attributes:
        other_attention: makes the alternate route's, whose launches follow a schedule.
        synchronize: waits until the device has done all its work.
    """

    other_attention: Callable[[Schedule], Attention]
    synchronize: Callable[[], None]


def always(ran: Ran) -> str | None:
    """Return None: the factor applies to whatever ran."""
    return None


def without_caution(ran: Ran) -> str | None:
    """Return None: the verdict can be read as it stands."""
    return None


def unchanged(means: Means) -> PartWrapper:
    """Return a wrapper that wraps nothing."""
    return lambda parts: parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """One variable that a trial can change.

    Attributes:
        name: as in ``--factor NAME``.
        summary: one sentence: what is changed, and what it would mean if that stabilised the step.
        part: the field of `swarepro.runtime.parts.StageParts` that it wraps; ``schedule`` for one
            that fixes the order of launches, ``plan`` and ``model`` for one that wraps none and
            runs other steps, or the same ones in another dtype.
        scope: from which state its trials begin.
        wrap: given the means, wraps the part of one stage.
        applies: None, or the reason why it does not apply to what ran.
        schedule: under which its trials run; None = that of the control's trial.
        caution: None, or what a reader of the verdict has to know about what ran.
        steps: given the plan and the target step, the steps that its trials run, the last of them
            in place of the target step; None = those of the plan.
        dtype: in which its trials run; None = that of the case.
    """

    name: str
    summary: str
    part: str
    scope: Scope
    wrap: Callable[[Means], PartWrapper] = unchanged
    applies: Callable[[Ran], str | None] = always
    schedule: str | None = None
    caution: Callable[[Ran], str | None] = without_caution
    steps: Callable[[RunPlan, int], tuple[Step, ...]] | None = None
    dtype: str | None = None

    @property
    def rounds_differently(self) -> bool:
        """Whether a right treatment's bytes are others, so that chosen tokens are compared."""
        return self.steps is not None or self.dtype is not None


FACTORS: Registry[Factor] = Registry("factor", error=UsageError)
