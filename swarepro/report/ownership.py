"""What the ownership shadow saw in one run, in words and as data."""

from collections.abc import Sequence
from typing import Any

import msgspec

from swarepro.bundle.schema import StageEntry, StageOwnership
from swarepro.report.model import Report, Tone
from swarepro.report.slots import slot_grids, violations_in_order, violations_sentence
from swarepro.report.words import count, literal


def ownership_report(
    ownership: Sequence[StageOwnership],
    *,
    case: str,
    stages: tuple[StageEntry, ...],
    steps: int,
    steps_done: int,
    error: str | None,
) -> Report:
    """Name the first broken rule of a run, or say that there is none.

    Args:
        ownership: by stage and KV group, at the end.
        case: its name.
        stages: that ran.
        steps: of the plan.
        steps_done: that were finished.
        error: with which the runtime ended the run, or None.
    """
    broken = violations_sentence(ownership)
    done = f"Case {literal(case)}: {steps_done} of {count(steps, 'step')} ran."
    lines = [done] if error is None else [done, f"There the runtime refused: {literal(error)}."]
    return Report(
        headline=(
            f"No ownership rule was broken in {count(steps, 'step')}." if broken is None else broken
        ),
        tone=Tone.GOOD if broken is None else Tone.BAD,
        grids=slot_grids(ownership, stages, shadow=True),
        lines=tuple(lines),
    )


def ownership_document(
    ownership: Sequence[StageOwnership],
    *,
    case: str,
    steps: int,
    steps_done: int,
    error: str | None,
) -> dict[str, Any]:
    """Return what `swarepro ownership --json` prints; see `ownership_report`."""
    found = [
        {"stage": owned.stage, **msgspec.to_builtins(violation)}
        for owned, violation in violations_in_order(ownership)
    ]
    return {
        "case": case,
        "steps": steps,
        "steps_done": steps_done,
        "error": error,
        "first_violation": found[0] if found else None,
        "violations": found,
        "ownership": msgspec.to_builtins(tuple(ownership)),
    }
