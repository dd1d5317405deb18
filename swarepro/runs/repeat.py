"""Runs a case N times and classifies what varies."""

import contextlib
import multiprocessing
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from swarepro.bundle.read import open_bundle
from swarepro.bundle.schema import StageOwnership, TensorRecord
from swarepro.case import CaseSpec
from swarepro.compare.determinism import classify
from swarepro.errors import BackendError, BundleError
from swarepro.options import Progress, RunOptions, no_progress
from swarepro.runs.asked import check_number
from swarepro.runs.children import signals_held, take_signals
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
    check_number(repeats, "repeats")
    if keep is not None:
        return _repeat_into(keep, case, repeats, options, fresh_process, progress)
    options = replace(options, capture=replace(options.capture, store="digest"))
    if not fresh_process:
        prepared = prepare(case, options, copies=0, progress=progress)
        return repeat_prepared(prepared, repeats=repeats, progress=progress)
    with tempfile.TemporaryDirectory(prefix="swarepro-") as scratch:
        folders = _folders(Path(scratch), case, repeats)
        runs = _to_bundles(case, folders, options, fresh_process=True, progress=progress)
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
            raise _exists(folder)
    with _scratch_in(keep) as scratch:
        runs = _to_bundles(
            case,
            _folders(scratch, case, repeats),
            options,
            fresh_process=fresh_process,
            progress=progress,
        )
        result = _result(runs)
        modal = result.determinism.modal_repeat
        deviating = [index for index in result.determinism.deviating if index != modal]
        wanted = [folders[index] for index in (modal, *deviating[:1])]
        _move(scratch, wanted)
    return replace(result, kept=tuple(wanted))


@contextmanager
def _scratch_in(keep: Path) -> Iterator[Path]:
    """Make a folder of our own in ``keep``: whatever ends the run, what is left in it goes."""
    there = keep.exists()
    try:
        keep.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(prefix=".swarepro-", dir=keep)
    except OSError as error:
        raise BundleError(
            f"cannot write {keep}: {(error.strerror or str(error)).lower()}",
            hint="choose another folder for --keep",
        ) from None
    try:
        with scratch:
            yield Path(scratch.name)
    finally:
        if not there:
            with contextlib.suppress(OSError):  # it is not empty: something is kept
                keep.rmdir()


def _move(scratch: Path, wanted: list[Path]) -> None:
    """Move the bundles that are wanted out of ``scratch``: all of them or none."""
    moved: list[Path] = []
    try:
        for folder in wanted:
            if folder.exists():
                raise _exists(folder)
            (scratch / folder.name).rename(folder)
            moved.append(folder)
    except BaseException:
        for folder in moved:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _exists(folder: Path) -> BundleError:
    return BundleError(
        f"{folder} exists already; a bundle is never overwritten",
        hint="choose another folder for --keep, or remove it first",
    )


def _result(runs: list[Repeat]) -> RepeatResult:
    found = classify([run.records for run in runs], [run.tokens for run in runs])
    return RepeatResult(determinism=found, ownership=runs[found.modal_repeat].ownership, kept=())


def _folders(root: Path, case: CaseSpec, repeats: int) -> list[Path]:
    return [root / f"{case.name}-repeat-{index:03d}" for index in range(repeats)]


def schedule_of(prepared: Prepared, repeat: int) -> str:
    """Return the schedule of a repeat: each one gets another legal order, or the hardware's."""
    return "hardware" if prepared.schedule == "hardware" else f"seeded:{repeat}"


def repeat_prepared(prepared: Prepared, *, repeats: int, progress: Progress) -> RepeatResult:
    """Repeat in this process, on weights that are loaded; no tensor is kept."""
    case = prepared.case
    runs = []
    for index in range(repeats):
        progress(f"repeating {case.name}", index, repeats)
        records, outcome = run_in_memory(
            prepared, schedule=schedule_of(prepared, index), on_step=lambda step: None
        )
        runs.append(Repeat(records, flat_tokens(outcome.tokens), ownership_entries(outcome)))
    progress(f"repeating {case.name}", repeats, repeats)
    return _result(runs)


def _to_bundles(
    case: CaseSpec,
    folders: list[Path],
    options: RunOptions,
    *,
    fresh_process: bool,
    progress: Progress,
) -> list[Repeat]:
    """Write a bundle per repeat and read it."""
    if fresh_process:
        for index, folder in enumerate(folders):
            progress(f"repeating {case.name}", index, len(folders))
            work = (case, options, folder, index, len(folders))
            # One spawned process per repeat: nothing of one survives into the next.
            spawn = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as pool:
                with signals_held():
                    running = pool.submit(_one_in_a_process, *work)
                try:
                    running.result()
                except BrokenProcessPool:
                    raise BackendError(
                        f"the process of repeat {index} ended without a result",
                        hint="it may have been killed for want of memory: try fewer rows",
                    ) from None
    else:
        prepared = prepare(case, options, copies=len(folders), progress=progress)
        for index, folder in enumerate(folders):
            progress(f"repeating {case.name}", index, len(folders))
            run_to_bundle(
                prepared, folder, schedule=schedule_of(prepared, index), on_step=lambda step: None
            )
    progress(f"repeating {case.name}", len(folders), len(folders))
    bundles = [open_bundle(folder) for folder in folders]
    return [
        Repeat(bundle.records, flat_tokens(bundle.manifest.tokens), bundle.manifest.ownership)
        for bundle in bundles
    ]


def _one_in_a_process(
    case: CaseSpec, options: RunOptions, folder: Path, index: int, copies: int
) -> None:
    take_signals()
    prepared = prepare(case, options, copies=copies, progress=no_progress)
    schedule = schedule_of(prepared, index)
    run_to_bundle(prepared, folder, schedule=schedule, on_step=lambda step: None)


def flat_tokens(tokens: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """Return the tokens of all sessions in order."""
    return tuple(token for session in tokens for token in session)
