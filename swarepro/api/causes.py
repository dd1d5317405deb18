"""Prove why runs differ: replay from exactly the same state, change one variable."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from swarepro.case import CaseSpec
from swarepro.options import Progress, RunOptions, no_progress

if TYPE_CHECKING:
    from swarepro.evidence import Conclusions
    from swarepro.runs.results import InterveneResult, ReplayResult

_DEFAULT_OPTIONS = RunOptions()


def replay_case(
    case: CaseSpec,
    *,
    step: int,
    trials: int,
    options: RunOptions = _DEFAULT_OPTIONS,
    save: Path | None = None,
    progress: Progress = no_progress,
) -> "ReplayResult":
    """Replay one step of ``case`` from one frozen state.

    Trial i runs under schedule ``seeded:i``; where kernels are compiled the hardware chooses.

    Args:
        case: what to run.
        step: K; the steps before it run once for the frozen state, and more often for the proof
            that their outputs do not vary.
        trials: N, at least 2.
        options: how to run it; its schedule is not used.
        save: new folder for the frozen state; not written where the outputs before the step vary.
        progress: told of every trial.

    Raises:
        SwareproError: there is no such step, it changes no state, or the case cannot be run.
    """
    from swarepro.runs.replay import replay_case as replay

    return replay(case, step=step, trials=trials, options=options, save=save, progress=progress)


def replay_saved(
    state: Path,
    *,
    trials: int,
    options: RunOptions = _DEFAULT_OPTIONS,
    progress: Progress = no_progress,
) -> "ReplayResult":
    """Replay the step before which a state was saved by `replay_case`.

    Args:
        state: its folder.
        trials: N, at least 2.
        options: how to run it; case, faults, fill and ownership are those of the saved state.
        progress: told of every trial.

    Raises:
        SwareproError: it is no saved state, not as it was written, or of another shape.
    """
    from swarepro.runs.replay import replay_saved as replay

    return replay(state, trials=trials, options=options, progress=progress)


def intervene_case(
    case: CaseSpec,
    *,
    factors: tuple[str, ...] = (),
    step: int | None = None,
    trials: int = 6,
    options: RunOptions = _DEFAULT_OPTIONS,
    progress: Progress = no_progress,
) -> "InterveneResult":
    """Change one variable at a time and say what it does to the values of one step.

    Args:
        case: what to run.
        factors: names, or ``graft:POINT=BUNDLE`` to put another run's stored tensor in the place of
            a boundary; empty = each that has a name of its own.
        step: whose values are judged; None = the last one that computes a chunk.
        trials: of each arm, at least 2; trial i of the control runs under schedule ``seeded:i``.
        options: how to run it; its schedule and what it captures are not used.
        progress: told of every factor.

    Raises:
        SwareproError: no such factor or step, a graft that cannot be made, or the case cannot be
            run; an error of a treatment refuses that factor alone.
    """
    from swarepro.runs.intervene import intervene_case as intervene

    return intervene(
        case, factors=factors, step=step, trials=trials, options=options, progress=progress
    )


def diagnose_cases(
    anchors: Sequence[CaseSpec],
    *,
    folder: Path,
    control: CaseSpec | None = None,
    processes: int = 2,
    repeats: int = 3,
    trials: int = 6,
    factors: tuple[str, ...] = (),
    reference: Path | None = None,
    options: RunOptions = _DEFAULT_OPTIONS,
    progress: Progress = no_progress,
) -> "Conclusions":
    """Climb the whole ladder and leave the evidence in the new ``folder``.

    Args:
        anchors: cases that are suspected to vary, of one cause.
        folder: of the evidence; must not exist.
        control: a case that is not.
        processes: R, fresh ones of the baseline, for each case.
        repeats: N, in each of them.
        trials: of the replay, and of each arm of a factor.
        factors: names; empty = each that there is.
        reference: bundle that the one anchor is compared with where nothing varies.
        options: how to run them; schedule and capture are not used.
        progress: told of every trial.

    Raises:
        SwareproError: a case cannot be run at all, or the folder exists; interrupted, what has run
            is kept.
    """
    from swarepro.runs.diagnose import diagnose_cases as diagnose
    from swarepro.runs.diagnose_plan import Ladder

    ladder = Ladder(
        processes=processes, repeats=repeats, trials=trials, factors=factors, reference=reference
    )
    return diagnose(
        anchors, control, folder=folder, ladder=ladder, options=options, progress=progress
    )


def resume_diagnosis(folder: Path, *, progress: Progress = no_progress) -> "Conclusions":
    """Go on with a diagnosis that was cut off; no finished trial runs again.

    Raises:
        SwareproError: there is none, it was changed, another process is at work in it, or it was
            begun by another version.
    """
    from swarepro.runs.diagnose import resume_diagnosis as resume

    return resume(folder, progress=progress)


def conclude_evidence(folder: Path) -> "Conclusions":
    """Derive the conclusions of a finished diagnosis from its bytes; no model, no GPU, no torch.

    Raises:
        BundleError: a file is missing, unknown or changed, or the conclusions that are written
            there are not those that follow.
    """
    from swarepro.evidence.written import checked_conclusions

    return checked_conclusions(folder)
