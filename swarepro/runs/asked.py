"""What is asked of trials and repeats, checked before anything runs."""

from swarepro.errors import UsageError
from swarepro.runs.prepare import Prepared


def check_number(number: int, noun: str) -> None:
    """Raise UsageError unless ``number`` ``noun``s, an option of that name, can vary."""
    if number < 2:
        raise UsageError(f"{number} {noun} cannot vary", hint=f"use --{noun} 2 or more")


def check_step(prepared: Prepared, step: int) -> None:
    """Raise UsageError unless the case has ``step``."""
    total = len(prepared.plan.steps)
    if step >= total:
        raise UsageError(
            f"the case {prepared.case.name!r} has steps 0 to {total - 1}; step {step} is not one of"
            " them",
            hint="`swarepro run` lists the steps",
        )
