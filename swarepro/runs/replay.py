"""Replays one step of a case from one frozen state, again and again."""

from dataclasses import replace
from pathlib import Path

from swarepro.capture import MemorySink
from swarepro.case import CaseSpec
from swarepro.compare.determinism import classify
from swarepro.errors import IncomparableError, UsageError
from swarepro.options import Progress, RunOptions
from swarepro.runs.asked import check_number, check_step
from swarepro.runs.once import execution
from swarepro.runs.prefix import prefix_run, prefix_runs
from swarepro.runs.prepare import prepare
from swarepro.runs.repeat import schedule_of
from swarepro.runs.results import ReplayResult, StepOutput
from swarepro.runs.saved_state import (
    adopt_state,
    read_state,
    save_state,
)
from swarepro.runs.step_trials import StepTrials


def replay_case(
    case: CaseSpec,
    *,
    step: int,
    trials: int,
    options: RunOptions,
    save: Path | None = None,
    progress: Progress,
) -> ReplayResult:
    """See `swarepro.api.replay_case`."""
    check_number(trials, "trials")
    prepared = prepare(case, _everywhere(options), copies=0, progress=progress)
    check_step(prepared, step)
    schedule = schedule_of(prepared, 0)
    run, varying = prefix_run(prepared, step, progress=progress)
    ran = prefix_runs(step)
    if save is not None and not varying:
        save_state(save, run, prepared, step=step, schedule=schedule, prefix_runs=ran)
    return _replayed(
        StepTrials(prepared, run, step),
        trials,
        varying=varying,
        prefix_runs=ran,
        saved=None if varying else save,
        progress=progress,
    )


def replay_saved(
    directory: Path, *, trials: int, options: RunOptions, progress: Progress
) -> ReplayResult:
    """See `swarepro.api.replay_saved`."""
    check_number(trials, "trials")
    saved = read_state(directory)
    options = replace(
        _everywhere(options),
        faults=saved.faults,
        fill=saved.fill,
        ownership=saved.ownership,
    )
    prepared = prepare(saved.spec, options, copies=0, progress=progress)
    if saved.step >= len(prepared.plan.steps):
        raise UsageError(
            f"{directory} stands before step {saved.step}; its case has"
            f" {len(prepared.plan.steps)} steps"
        )
    run = execution(prepared, MemorySink([]), schedule=schedule_of(prepared, 0))
    if saved.ownership and saved.algorithm != run.row_algorithm:
        raise UsageError(
            f"the shadow of the saved state keeps {saved.algorithm} digests of rows; this route"
            f" takes {run.row_algorithm}",
            hint="save it with --ownership off to replay it on another device",
        )
    adopt_state(directory, saved, run, route=prepared.route)
    return _replayed(
        StepTrials(prepared, run, saved.step),
        trials,
        varying=(),
        prefix_runs=0,
        saved=directory,
        progress=progress,
    )


def _everywhere(options: RunOptions) -> RunOptions:
    """Return ``options`` with nothing left out by layer or step, as digests."""
    capture = replace(options.capture, store="digest", layers=(), steps=())
    return replace(options, capture=capture)


def _replayed(
    replayed: StepTrials,
    trials: int,
    *,
    varying: tuple[StepOutput, ...],
    prefix_runs: int,
    saved: Path | None,
    progress: Progress,
) -> ReplayResult:
    """Run the trials, and prove what has to be proved."""
    what = f"replaying step {replayed.step}"
    ran = []
    for trial in range(trials):
        progress(what, trial, trials)
        ran.append(replayed.run(trial))
    progress(what, trials, trials)
    replayed.finish()
    changed = tuple(sorted(frozenset().union(*(trial.changed for trial in ran))))
    if not changed:
        raise IncomparableError(
            f"no trial of step {replayed.step} changed any state: restoring it proves nothing",
            hint="choose a step that stores rows",
        )
    found = classify([trial.records for trial in ran], [trial.tokens for trial in ran])
    return ReplayResult(
        case=replayed.prepared.case.name,
        step=replayed.step,
        trials=trials,
        determinism=found,
        schedules=tuple(trial.schedule for trial in ran),
        varying_outputs=varying,
        prefix_runs=prefix_runs,
        saved=saved,
        state=len(replayed.before),
        changed=changed,
        rows_restored=sum(trial.rows_restored for trial in ran),
        ownership=ran[found.modal_repeat].ownership,
    )
