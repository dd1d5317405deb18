"""Run a case, look at it, and compare: what needs no cause yet."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from swarepro.case import CaseSpec
from swarepro.options import HfAttention, Progress, RunOptions, no_progress

if TYPE_CHECKING:
    from swarepro.compare.fills import FillProbe
    from swarepro.compare.types import Divergence, Tolerance
    from swarepro.runs.results import (
        CaseResult,
        DetectionRow,
        OwnershipResult,
        RepeatResult,
        RunResult,
    )

_DEFAULT_OPTIONS = RunOptions()


def run_case(
    case: CaseSpec,
    *,
    out: Path,
    run_id: str | None = None,
    options: RunOptions = _DEFAULT_OPTIONS,
    progress: Progress = no_progress,
) -> "RunResult":
    """Run ``case`` once and write the bundle ``out / run_id``.

    Args:
        case: what to run.
        out: folder of bundles; made when it is not there.
        run_id: name of the bundle; by default the case, its faults and the time.
        options: how to run it.
        progress: told of every step.

    Raises:
        SwareproError: nothing is left behind under ``out / run_id``.
    """
    from swarepro.runs.once import run_to_bundle
    from swarepro.runs.prepare import prepare
    from swarepro.runs.results import RunResult

    directory = out / (run_id if run_id is not None else _default_run_id(case, options))
    prepared = prepare(case, options, progress=progress)
    total = len(prepared.plan.steps)
    manifest = run_to_bundle(
        prepared,
        directory,
        schedule=prepared.schedule,
        on_step=lambda step: progress(f"running {case.name}", step.index + 1, total),
    )
    return RunResult(
        bundle=directory,
        manifest=manifest,
        texts=_texts(case, manifest.tokens),
        unmatched=prepared.unmatched,
    )


def capture_hf(
    case: CaseSpec,
    *,
    out: Path,
    run_id: str | None = None,
    options: RunOptions = _DEFAULT_OPTIONS,
    attention: HfAttention = "eager",
    progress: Progress = no_progress,
) -> "RunResult":
    """Run ``case`` through transformers and write the bundle ``out / run_id``.

    Args:
        case: what to run: all layers, no faults.
        out: folder of bundles; made when it is not there.
        run_id: name of the bundle; by default the case, ``hf`` and the time.
        options: what to capture.
        attention: transformers' attention function.
        progress: told of every step.

    Raises:
        SwareproError: nothing is left behind under ``out / run_id``.
    """
    from swarepro.runs.hf import capture_transformers
    from swarepro.runs.results import RunResult

    name = _default_run_id(msgspec.structs.replace(case, name=f"{case.name}-hf"), options)
    directory = out / (run_id if run_id is not None else name)
    manifest, unmatched = capture_transformers(
        case, directory, options=options, attention=attention, progress=progress
    )
    return RunResult(
        bundle=directory,
        manifest=manifest,
        texts=_texts(case, manifest.tokens),
        unmatched=unmatched,
    )


def run_against(
    case: CaseSpec,
    baseline: Path,
    *,
    out: Path,
    run_id: str | None = None,
    go_on: bool = False,
    options: RunOptions = _DEFAULT_OPTIONS,
    progress: Progress = no_progress,
) -> "RunResult":
    """Run ``case`` once, compare each digest with the bundle ``baseline``, and write a bundle.

    Tensors are stored of the first mismatch and of its captured inputs alone. Where an input was
    not captured, or is not in the baseline, its own inputs are stored, as far back as the step
    goes. In memory are the records of both runs, and the tensors that `swarepro.runs.window.Window`
    names: not those of a whole step, and not more for more steps. A device is waited for at each
    captured tensor, which can hide a race.

    Args:
        case: what to run: the baseline's steps, as far as both go.
        baseline: path of a bundle; its digests are enough.
        out: folder of bundles; made when it is not there.
        run_id: name of the bundle; by default the case, its faults and the time.
        go_on: run all steps; else the run ends after the step of the first mismatch, or with the
            last step of the baseline, and the bundle has the steps that ran.
        options: how to run it; digests are stored, whatever ``capture.store`` says, and it is their
            size that is held against ``max_bundle_bytes``.
        progress: told of every step.

    Raises:
        BundleError: the baseline is refused. A tensor of it that is not what its record says is
            refused after the run, whose bundle stays.
        IncomparableError: its digests say nothing about those of this run.
        UsageError: another engine than the stage runtime.
        SwareproError: nothing is left behind under ``out / run_id``.
    """
    from swarepro.runs.against import run_against as against
    from swarepro.runs.results import RunResult

    directory = out / (run_id if run_id is not None else _default_run_id(case, options))
    manifest, found, unmatched = against(
        case, baseline, directory, go_on=go_on, options=options, progress=progress
    )
    return RunResult(
        bundle=directory,
        manifest=manifest,
        texts=_texts(case, manifest.tokens),
        unmatched=unmatched,
        against=found,
    )


def _texts(case: CaseSpec, tokens: tuple[tuple[int, ...], ...]) -> tuple[str | None, ...]:
    """Decode what the sessions with a text prompt generated."""
    if all(session.prompt.text is None for session in case.sessions):
        return (None,) * len(tokens)
    from swarepro.checkpoint import open_checkpoint

    tokenizer = open_checkpoint(case.model).tokenizer()
    return tuple(
        None if session.prompt.text is None else tokenizer.decode(ids)
        for session, ids in zip(case.sessions, tokens, strict=True)
    )


def _default_run_id(case: CaseSpec, options: RunOptions) -> str:
    when = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
    return "-".join((case.name, *options.faults, when))


def diff_runs(
    baseline: Path,
    target: Path,
    *,
    align: Literal["step", "position"] | None = None,
    tolerance: "Tolerance | None" = None,
    verify: bool = False,
    progress: Progress = no_progress,
) -> "Divergence":
    """Compare two bundles.

    Args:
        baseline: path of a bundle.
        target: path of a bundle.
        align: how boundaries are matched; None: ``step`` for the same steps, as far as both go,
            else ``position``.
        tolerance: when values count as equal; None = bitwise.
        verify: hash every stored tensor against its record first.
        progress: told of every boundary that is opened.

    Raises:
        BundleError: a bundle is refused.
        IncomparableError: nothing can be judged.
    """
    from swarepro.bundle.read import open_bundle
    from swarepro.compare.divergence import compare_bundles

    return compare_bundles(
        open_bundle(baseline),
        open_bundle(target),
        align=align,
        tolerance=tolerance,
        verify=verify,
        progress=progress,
    )


def repeat_case(
    case: CaseSpec,
    *,
    repeats: int,
    options: RunOptions = _DEFAULT_OPTIONS,
    fresh_process: bool = False,
    keep: Path | None = None,
    progress: Progress = no_progress,
) -> "RepeatResult":
    """Run ``case`` N times and say what varies.

    Repeat i runs under schedule ``seeded:i``; where kernels are compiled the hardware chooses.

    Args:
        case: what to run.
        repeats: N, at least 2.
        options: how to run it; its schedule is not used.
        fresh_process: each repeat runs in a process of its own.
        keep: folder for the bundles of the modal and of one deviating repeat.
        progress: told of every repeat.

    Raises:
        SwareproError: nothing is left behind under ``keep``.
    """
    from swarepro.runs.repeat import repeat_case as repeat

    return repeat(
        case,
        repeats=repeats,
        options=options,
        fresh_process=fresh_process,
        keep=keep,
        progress=progress,
    )


def watch_case(
    case: CaseSpec,
    *,
    options: RunOptions = _DEFAULT_OPTIONS,
    progress: Progress = no_progress,
) -> "OwnershipResult":
    """Run ``case`` once and say which rules of KV slot ownership it breaks; no bundle is written.

    Args:
        case: what to run.
        options: how to run it; what is captured is not looked at.
        progress: told of every step.

    Raises:
        SwareproError: the case cannot be run at all; what the runtime refuses while it runs is part
            of the result.
    """
    from swarepro.runs.watch import watch_case as watch

    return watch(case, options, progress=progress)


def probe_fill(
    case: CaseSpec,
    *,
    options: RunOptions = _DEFAULT_OPTIONS,
    progress: Progress = no_progress,
) -> "FillProbe":
    """Run ``case`` with three fills of memory that nobody wrote and say what depends on them.

    Args:
        case: what to run.
        options: how to run it; its fill is not used.
        progress: told of every run.

    Raises:
        SwareproError: the case cannot be run.
    """
    from swarepro.runs.fill_probe import probe_case

    return probe_case(case, options, progress=progress)


def judge_case(case: CaseSpec, *, progress: Progress = no_progress) -> "CaseResult":
    """Run both arms of ``case`` and check each line of its [expect]."""
    from swarepro.runs.judge import judge_case as judge

    return judge(case, progress=progress)


def detection_row(case: CaseSpec) -> "DetectionRow":
    """Return what each detector must answer to the fault of ``case``. Raises UsageError."""
    from swarepro.runs.detection import detection_row as row

    return row(case)
