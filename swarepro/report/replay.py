"""What trials of one step from one frozen state show, in words and as data."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from swarepro.bundle.schema import StageOwnership
from swarepro.compare.types import Determinism
from swarepro.report.jsonout import determinism_document
from swarepro.report.model import Report, Tone
from swarepro.report.repeats import determinism_report
from swarepro.report.words import count, listed, literal


def replay_report(
    found: Determinism,
    *,
    case: str,
    step: int,
    schedules: Sequence[str],
    varying_outputs: Sequence[tuple[int, int, str]],
    prefix_runs: int,
    saved: Path | None,
    state: int,
    changed: Sequence[str],
    rows_restored: int,
    ownership: Sequence[StageOwnership],
) -> Report:
    """Say what varies between trials that began with the same state.

    Args:
        found: of the trials.
        case: its name.
        step: that was replayed.
        schedules: of the trials.
        varying_outputs: step, session and name of outputs before it that differ between runs from
            scratch; any makes the harness invalid.
        prefix_runs: runs from scratch that were compared for that; 0 = when the state was saved.
        saved: folder of the state.
        state: number of things that the state is made of.
        changed: names of those that a trial changed.
        rows_restored: rows of the pools that were copied back.
        ownership: of the modal trial.
    """
    setting = (
        f"Case {literal(case)}: step {step}, {count(len(schedules), 'trial')} under"
        f" {listed(schedules, most=8)}, each from the state that the steps before it left."
    )
    proof = (
        f"Restored: before every trial and after the last, all {state} digests of the state were"
        f" the frozen ones; trials changed {len(changed)} of them, and"
        f" {count(rows_restored, 'row')} were copied back."
    )
    report = determinism_report(found, setting=setting, ownership=ownership)
    lines = (*report.lines, proof)
    if not varying_outputs:
        again = () if saved is None else (f"swarepro replay --from {literal(saved)}",)
        return replace(
            report,
            lines=(*lines, _before(step, prefix_runs)),
            commands=(*report.commands, *again),
        )
    first_step, session, name = varying_outputs[0]
    return replace(
        report,
        tone=Tone.UNSURE,
        headline=(
            f"INVALID: step {first_step}, session {session}, {literal(name)} varies between runs"
            f" from scratch, so one frozen state does not stand for what comes before step {step}."
        ),
        lines=(f"The trials from one of these states: {report.headline}", *lines),
        commands=(f"swarepro replay {literal(case)} --step {first_step}",),
    )


def _before(step: int, prefix_runs: int) -> str:
    if not step:
        return "No step comes before it: the frozen state is the empty one."
    if not prefix_runs:
        return "The state is a saved one; what came before it was compared when it was saved."
    return (
        "The outputs of the steps before it are the same in"
        f" {count(prefix_runs, 'run')} from scratch."
    )


def replay_document(
    found: Determinism,
    *,
    case: str,
    step: int,
    schedules: Sequence[str],
    varying_outputs: Sequence[tuple[int, int, str]],
    prefix_runs: int,
    saved: Path | None,
    state: int,
    changed: Sequence[str],
    rows_restored: int,
    ownership: Sequence[StageOwnership],
) -> dict[str, Any]:
    """Return what `swarepro replay --json` prints; see `replay_report`."""
    return {
        "case": case,
        "step": step,
        "trials": len(schedules),
        "valid": not varying_outputs,
        "varying_outputs": [
            {"step": at, "session": session, "name": name} for at, session, name in varying_outputs
        ],
        "prefix_runs": prefix_runs,
        "saved": None if saved is None else str(saved),
        "schedules": list(schedules),
        "state": state,
        "changed": list(changed),
        "rows_restored": rows_restored,
        "found": determinism_document(found, ownership=ownership, kept=()),
    }
