"""Runs a case once for its ownership alone; it answers also where the run ends early."""

from dataclasses import replace

from msgspec import structs

from swarepro.bundle.schema import StageOwnership
from swarepro.capture import MemorySink
from swarepro.case import CaseSpec
from swarepro.errors import SessionError
from swarepro.options import Progress, RunOptions
from swarepro.plan import Step
from swarepro.points import Level
from swarepro.runs.once import execution, ownership_entries, stage_entries
from swarepro.runs.prepare import Prepared, prepare
from swarepro.runs.results import OwnershipResult


def watch_case(case: CaseSpec, options: RunOptions, *, progress: Progress) -> OwnershipResult:
    """See `swarepro.api.watch_case`."""
    watched = replace(options, ownership=True)
    return watch_prepared(prepare(case, watched, copies=0, progress=progress), progress=progress)


def watch_prepared(prepared: Prepared, *, progress: Progress) -> OwnershipResult:
    """Run once under the shadow; a refusal of the runtime is part of the answer."""
    prepared = replace(
        prepared,
        capture=structs.replace(prepared.capture, level=Level.OFF, store="digest"),
        options=replace(prepared.options, ownership=True),
    )
    total, done = len(prepared.plan.steps), 0

    def on_step(step: Step) -> None:
        nonlocal done
        done = step.index + 1
        progress(f"watching {prepared.case.name}", done, total)

    run = execution(prepared, MemorySink([]), schedule=prepared.schedule)
    error = hint = None
    try:
        run.run(on_step=on_step)
    except SessionError as refusal:
        error = f"{type(refusal).__name__}: {refusal.message}"
        hint = refusal.hint
    found: tuple[StageOwnership, ...] = ownership_entries(run.outcome)
    return OwnershipResult(
        case=prepared.case.name,
        stages=stage_entries(prepared),
        ownership=found,
        steps=total,
        steps_done=done,
        error=error,
        hint=hint,
    )
