"""The whole ladder: baseline, observers, replay, factors, and what follows from them."""

import fcntl
import multiprocessing
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from swarepro.case import CaseSpec
from swarepro.errors import BackendError, BundleError, UsageError
from swarepro.evidence import Conclusions, conclude, ledger, read_evidence
from swarepro.evidence.check import load_evidence, possible_units
from swarepro.evidence.folder import clear_parts, files_of, write_manifest, write_once
from swarepro.evidence.held import Evidence, decoded, read_file
from swarepro.evidence.schema import CONCLUSIONS, LEDGER, MANIFEST, PLAN, REFERENCE, Plan
from swarepro.evidence.units import NOTE, Unit, named
from swarepro.evidence.written import conclusions_data
from swarepro.options import Progress, RunOptions
from swarepro.runs.children import signals_held
from swarepro.runs.diagnose_plan import Ladder, code_digest, environment_of, plan_diagnosis
from swarepro.runs.diagnose_work import work

_ORPHANS_SECONDS = 10.0
_POLL_SECONDS = 0.3


def diagnose_cases(
    anchors: Sequence[CaseSpec],
    control: CaseSpec | None,
    *,
    folder: Path,
    ladder: Ladder,
    options: RunOptions,
    progress: Progress,
) -> Conclusions:
    """See `swarepro.api.diagnose_cases`."""
    plan, reference = plan_diagnosis(
        anchors, control, folder=folder, ladder=ladder, options=options, progress=progress
    )
    data = msgspec.json.encode(plan)
    try:
        folder.mkdir(parents=True)
        (folder / PLAN).write_bytes(data)
        ledger.append(folder, "plan", what=PLAN, digest=ledger.sha256(data))
        if plan.reference is not None:
            write_once(folder, REFERENCE, reference)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise BundleError(f"cannot write {folder}: {error.strerror}") from error
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return _go_on(folder, progress)


def resume_diagnosis(folder: Path, *, progress: Progress) -> Conclusions:
    """See `swarepro.api.resume_diagnosis`."""
    if not (folder / LEDGER).is_file() or not (folder / PLAN).is_file():
        raise BundleError(
            f"{folder} is no diagnosis that was begun: it has no {PLAN} or no {LEDGER}",
            hint="`swarepro diagnose CASE --out DIR` begins one",
        )
    if (folder / MANIFEST).is_file():
        evidence = read_evidence(folder)
        if not evidence.failures():
            return conclude(evidence)
    return _go_on(folder, progress)


def _go_on(folder: Path, progress: Progress) -> Conclusions:
    """Do what is not done, conclude, and seal the folder."""
    try:
        with _alone(folder):
            return _finished(folder, progress)
    except OSError as error:
        raise BundleError(
            f"cannot write in {folder}: {error.strerror}; what has run is kept",
            hint=f"go on with it when it can be written: swarepro diagnose --resume {folder}",
        ) from error
    except KeyboardInterrupt:
        raise BackendError(
            f"interrupted; what has run is kept in {folder}",
            hint=f"go on with it: swarepro diagnose --resume {folder}",
        ) from None


def _finished(folder: Path, progress: Progress) -> Conclusions:
    clear_parts(folder)
    ledger.mend(folder)
    _note_orphans(folder)
    for name in (CONCLUSIONS, MANIFEST):
        (folder / name).unlink(missing_ok=True)
    begun = load_evidence(folder)
    _check_same(begun.plan)
    for launch in begun.unended:
        ledger.append(folder, "lost", launch=launch)
    tried: set[Unit] = set()
    while True:
        evidence = load_evidence(folder)
        todo = [unit for unit in evidence.expected() if not evidence.is_done(unit)]
        units = _together([unit for unit in todo if unit not in tried])
        if not units:
            break
        _launch(folder, evidence, units, progress)
        tried.update(units)
    conclusions = conclude(load_evidence(folder))
    (folder / CONCLUSIONS).write_bytes(conclusions_data(conclusions))
    write_manifest(folder)
    return conclusions


def _together(units: Sequence[Unit]) -> list[Unit]:
    """Return the units that the next process does: one of a baseline, else all of a case."""
    if not units:
        return []
    first = units[0]
    if first.kind == "baseline":
        return [first]
    return [
        unit
        for unit in units
        if unit.case == first.case and (unit.kind == "observer") == (first.kind == "observer")
    ]


def _launch(folder: Path, evidence: Evidence, units: Sequence[Unit], progress: Progress) -> None:
    """Do ``units`` in a fresh process and wait for its end, however it comes."""
    number = evidence.launches + 1
    ledger.append(folder, "launch", launch=number, what=named(units))
    files = [unit.file(name) for unit in units for name in evidence.missing(unit)]
    what = f"{units[0].case}: {units[0].kind}"
    if len(units) > 1:
        what = f"{units[0].case}: replay and factors"

    def show() -> None:
        done = sum((folder / name).exists() for name in files)
        progress(f"{number}. {what}", done, len(files))

    process = multiprocessing.get_context("spawn").Process(
        target=work, args=(folder, number, list(units)), daemon=True
    )
    try:
        with signals_held():
            process.start()
        while process.is_alive():
            show()
            process.join(_POLL_SECONDS)
    finally:
        if process.pid is not None:
            process.kill()
            process.join()
    show()
    if process.exitcode == 0:
        ledger.append(folder, "end", launch=number)
        return
    ledger.append(folder, "lost", launch=number)
    left = load_evidence(folder)
    message = f"the process ended with code {process.exitcode} and no result; was it killed?"
    for unit in units:
        if not left.is_done(unit):
            ledger.append(folder, "failed", launch=number, what=unit.folder, error=message)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder against other processes; wait for one that a killed diagnosis left behind.

    Raises:
        BackendError: another diagnosis is at work in it.
    """
    with (folder / PLAN).open("rb") as own, (folder / LEDGER).open("rb") as theirs:
        _locked(own, folder)
        # Each process at work holds the ledger, and ends soon after the one that started it.
        _locked(theirs, folder)
        fcntl.flock(theirs, fcntl.LOCK_UN)
        yield


def _locked(file: BinaryIO, folder: Path) -> None:
    until = time.monotonic() + _ORPHANS_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            if time.monotonic() > until:
                raise BackendError(
                    f"another diagnosis is at work in {folder}",
                    hint="wait for its end, or stop it",
                ) from None
        time.sleep(_POLL_SECONDS)


def _note_orphans(folder: Path) -> None:
    """Add the lines of files that were written whole before their process was killed.

    Raises:
        BundleError: a file is not one that the diagnosis writes.
    """
    known = {line.what for line in ledger.read_ledger(folder)} | {CONCLUSIONS, MANIFEST}
    plan = decoded(folder / PLAN, read_file(folder / PLAN), Plan)
    units = {unit.folder: unit for unit in possible_units(plan)}
    states = {name for unit in units.values() for name in unit.states()}
    orphans: list[tuple[str, int]] = []
    for name in files_of(folder):
        if name in known or name in (PLAN, LEDGER):
            continue
        place, _, file = name.rpartition("/")
        what = file.removesuffix(".json")
        if place in units and (what == NOTE or what in units[place].trials(plan)):
            data = read_file(folder / name)
            orphans.append((name, decoded(folder / name, data, _Launched).launch))
        elif name in states or name == REFERENCE:
            orphans.append((name, 0))
        else:
            raise BundleError(
                f"{folder / name} is unknown: no diagnosis writes it", hint="move it elsewhere"
            )
    for name, launch in orphans:
        digest = ledger.sha256(read_file(folder / name))
        ledger.append(folder, "file", launch=launch, what=name, digest=digest)


class _Launched(msgspec.Struct):
    """All that is wanted of a file here: which launch wrote it."""

    launch: int


def _check_same(plan: Plan) -> None:
    """A diagnosis is of one program on one machine: others' trials must not stand beside these."""
    now = environment_of(plan.how.device)
    differ = [
        f"{name} {getattr(plan.environment, name)} against {getattr(now, name)}"
        for name in ("python", "platform", "cpu", "packages", "gpu")
        if getattr(plan.environment, name) != getattr(now, name)
    ]
    if differ:
        raise UsageError(
            f"the diagnosis was begun in another environment: {'; '.join(differ)}",
            hint="resume it where it was begun, or begin a new one",
        )
    if plan.code != code_digest():
        raise UsageError(
            f"the plan was written by swarepro {plan.environment.swarepro} with other source files"
            " than these",
            hint="resume it with the version that began it, or begin a new diagnosis",
        )
