"""Runs a case N times and classifies what varies."""

import multiprocessing
import shutil
import tempfile
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from swarepro.bundle.read import open_bundle
from swarepro.bundle.schema import StageOwnership, TensorRecord
from swarepro.case import CaseSpec
from swarepro.compare.determinism import classify
from swarepro.errors import BackendError, BundleError, UsageError
from swarepro.options import Progress, RunOptions, no_progress
from swarepro.runs.once import ownership_entries, run_in_memory, run_to_bundle
from swarepro.runs.prepare import Prepared, prepare
from swarepro.runs.results import RepeatResult


class Repeat(NamedTuple):
    """What one repeat gave."""

    records: tuple[TensorRecord, ...]
    tokens: tuple[int, ...]
    ownership: tuple[StageOwnership, ...]


def repeat_case(
    case: CaseSpec,
    *,
    repeats: int,
    options: RunOptions,
    fresh_process: bool,
    keep: Path | None,
    progress: Progress,
) -> RepeatResult:
    """See `swarepro.api.repeat_case`."""
    if repeats < 2:
        raise UsageError(f"{repeats} repeats cannot vary", hint="use --repeats 2 or more")
    if keep is not None:
        return _repeat_into(keep, case, repeats, options, fresh_process, progress)
    options = replace(options, capture=replace(options.capture, store="digest"))
    if not fresh_process:
        prepared = prepare(case, options, copies=0, progress=progress)
        return repeat_prepared(prepared, repeats=repeats, progress=progress)
    with tempfile.TemporaryDirectory(prefix="swarepro-") as scratch:
        folders = _folders(Path(scratch), case, repeats)
        runs = _to_bundles(case, folders, options, fresh_process=True, progress=progress, made=[])
    return _result(runs)


def _repeat_into(
    keep: Path,
    case: CaseSpec,
    repeats: int,
    options: RunOptions,
    fresh_process: bool,
    progress: Progress,
) -> RepeatResult:
    """Write a bundle per repeat; leave those of the modal and of one deviating repeat."""
    folders = _folders(keep, case, repeats)
    for folder in folders:
        if folder.exists():
            raise BundleError(
                f"{folder} exists already; a bundle is never overwritten",
                hint="choose another folder for --keep, or remove it first",
            )
    made: list[Path] = []
    wanted: list[Path] = []
    try:
        runs = _to_bundles(
            case, folders, options, fresh_process=fresh_process, progress=progress, made=made
        )
        result = _result(runs)
        modal = result.determinism.modal_repeat
        deviating = [index for index in result.determinism.deviating if index != modal]
        wanted = [folders[index] for index in (modal, *deviating[:1])]
    finally:
        for folder in made:  # another process may have made the others
            if folder not in wanted:
                shutil.rmtree(folder, ignore_errors=True)
    return replace(result, kept=tuple(wanted))


def _result(runs: list[Repeat]) -> RepeatResult:
    found = classify([run.records for run in runs], [run.tokens for run in runs])
    return RepeatResult(determinism=found, ownership=runs[found.modal_repeat].ownership, kept=())


def _folders(root: Path, case: CaseSpec, repeats: int) -> list[Path]:
    return [root / f"{case.name}-repeat-{index:03d}" for index in range(repeats)]


def _schedule(prepared: Prepared, repeat: int) -> str:
    """Return the schedule of a repeat: each one gets another legal order, or the hardware's."""
    return "hardware" if prepared.schedule == "hardware" else f"seeded:{repeat}"


def repeat_prepared(prepared: Prepared, *, repeats: int, progress: Progress) -> RepeatResult:
    """Repeat in this process, on weights that are loaded; no tensor is kept."""
    case = prepared.case
    runs = []
    for index in range(repeats):
        progress(f"repeating {case.name}", index, repeats)
        records, outcome = run_in_memory(
            prepared, schedule=_schedule(prepared, index), on_step=lambda step: None
        )
        owners = ownership_entries(outcome.ownership, session=len(prepared.plan.prompts) - 1)
        runs.append(Repeat(records, _flat(outcome.tokens), owners))
    progress(f"repeating {case.name}", repeats, repeats)
    return _result(runs)


def _to_bundles(
    case: CaseSpec,
    folders: list[Path],
    options: RunOptions,
    *,
    fresh_process: bool,
    progress: Progress,
    made: list[Path],
) -> list[Repeat]:
    """Write a bundle per repeat; each is added to ``made`` when it is whole."""
    if fresh_process:
        # One spawned process per repeat: nothing of one survives into the next.
        with ProcessPoolExecutor(
            max_workers=1,
            mp_context=multiprocessing.get_context("spawn"),
            max_tasks_per_child=1,
        ) as pool:
            for index, folder in enumerate(folders):
                progress(f"repeating {case.name}", index, len(folders))
                work = (case, options, folder, index, len(folders))
                try:
                    pool.submit(_one_in_a_process, *work).result()
                except BrokenProcessPool:
                    raise BackendError(
                        f"the process of repeat {index} ended without a result",
                        hint="it may have been killed for want of memory: try fewer rows",
                    ) from None
                made.append(folder)
    else:
        prepared = prepare(case, options, copies=len(folders), progress=progress)
        for index, folder in enumerate(folders):
            progress(f"repeating {case.name}", index, len(folders))
            run_to_bundle(
                prepared, folder, schedule=_schedule(prepared, index), on_step=lambda step: None
            )
            made.append(folder)
    progress(f"repeating {case.name}", len(folders), len(folders))
    bundles = [open_bundle(folder) for folder in folders]
    return [
        Repeat(bundle.records, _flat(bundle.manifest.tokens), bundle.manifest.ownership)
        for bundle in bundles
    ]


def _one_in_a_process(
    case: CaseSpec, options: RunOptions, folder: Path, index: int, copies: int
) -> None:
    prepared = prepare(case, options, copies=copies, progress=no_progress)
    schedule = _schedule(prepared, index)
    run_to_bundle(prepared, folder, schedule=schedule, on_step=lambda step: None)


def _flat(tokens: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    return tuple(token for session in tokens for token in session)
