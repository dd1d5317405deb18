"""Reads an evidence folder and refuses what does not hang together."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from swarepro.bundle.digest import digest_bytes
from swarepro.bundle.schema import TensorRecord
from swarepro.errors import BundleError
from swarepro.evidence.folder import check_manifest, files_of
from swarepro.evidence.held import Evidence, decoded, read_file
from swarepro.evidence.ledger import read_ledger, sha256
from swarepro.evidence.schema import (
    CONCLUSIONS,
    LEDGER,
    MANIFEST,
    PLAN,
    REFERENCE,
    FactorNote,
    Line,
    Plan,
    ReplayNote,
    Trial,
)
from swarepro.evidence.units import NOTE, Unit, first_units, index_of, later_units

_T = TypeVar("_T")


def read_evidence(folder: Path) -> Evidence:
    """Read a finished diagnosis and check every byte of it.

    Raises:
        BundleError: a file is missing, unknown or changed, or does not belong to the plan, by name.
    """
    check_manifest(folder)
    evidence = load_evidence(folder)
    if evidence.unended:
        raise BundleError(
            f"{folder / LEDGER}: launch {evidence.unended[0]} has no end: a line is missing"
        )
    failed = evidence.failures()
    for unit in evidence.expected():
        lacking = [] if unit in failed else evidence.lacking(unit)
        if lacking:
            raise BundleError(
                f"{folder / lacking[0]} is missing: the plan asks for it, and no launch failed",
                hint="`swarepro diagnose --resume DIR` goes on with a diagnosis that was cut off",
            )
    return evidence


def load_evidence(folder: Path) -> Evidence:
    """Read what there is of a diagnosis, finished or not.

    Raises:
        BundleError: it is none, or a file does not belong to it, by name.
    """
    plan_data = read_file(folder / PLAN)
    plan = decoded(folder / PLAN, plan_data, Plan)
    plan_digest = sha256(plan_data)
    lines = read_ledger(folder)
    _check_first(folder, plan, plan_digest, lines)
    named = _named(folder, lines)
    _check_known(folder, plan, frozenset(line.what for line in named))
    trials: dict[str, Trial] = {}
    factor_notes: dict[str, FactorNote] = {}
    replay_notes: dict[str, ReplayNote] = {}
    units = {unit.folder: unit for unit in possible_units(plan)}
    for line in named:
        data = read_file(folder / line.what)
        if sha256(data) != line.digest:
            raise BundleError(f"{folder / line.what} was changed: the ledger has another SHA-256")
        place, _, name = line.what.rpartition("/")
        if place not in units:
            continue
        unit, path, what = units[place], folder / line.what, name.removesuffix(".json")
        content: Trial | FactorNote | ReplayNote
        if what == NOTE and unit.kind == "factor":
            content = factor_notes[line.what] = decoded(path, data, FactorNote)
        elif what == NOTE:
            content = replay_notes[line.what] = decoded(path, data, ReplayNote)
        elif what in unit.trials(plan):
            content = trials[line.what] = decoded(path, data, Trial)
            _check_trial(path, plan, unit, what, content)
        else:
            raise BundleError(f"{path} is unknown: the plan asks for no such trial")
        if content.plan != plan_digest:
            raise BundleError(
                f"{path} was run under another plan: {PLAN} was written or changed after it"
            )
        if content.launch != line.launch:
            raise BundleError(f"{path} names launch {content.launch}; the ledger {line.launch}")
    return Evidence(
        folder=folder,
        plan=plan,
        plan_digest=plan_digest,
        lines=lines,
        files=frozenset(line.what for line in named),
        trials=trials,
        factor_notes=factor_notes,
        replay_notes=replay_notes,
        reference=_reference(folder, plan),
    )


def _check_trial(path: Path, plan: Plan, unit: Unit, what: str, trial: Trial) -> None:
    """A trial says what one of its kind must, and ran under the schedule that the plan gives it."""
    from_state = unit.has_note
    if (trial.state is not None, trial.step is not None) != (from_state, from_state):
        raise BundleError(f"{path} is not of its kind: a state and a step belong to a replay alone")
    if unit.kind == "replay" and not trial.changed:
        raise BundleError(f"{path} changed no state: that it was restored proves nothing")
    if (unit.kind == "factor") != (trial.inputs is not None):
        raise BundleError(f"{path} is not of its kind: token ids belong to a factor's trials")
    places = [(r.step, r.stage, r.session, r.name, r.occurrence) for r in trial.records]
    if len(set(places)) < len(places):
        raise BundleError(f"{path} has a boundary twice")
    wanted = plan.schedules[index_of(what)]
    if unit.kind == "factor" and what.startswith("treatment"):
        wanted = plan.factors[unit.number].schedule or wanted
    if trial.schedule != wanted:
        raise BundleError(f"{path} ran under {trial.schedule}; the plan says {wanted}")


def possible_units(plan: Plan) -> Iterator[Unit]:
    """Yield every unit that the plan can ask for, whatever the baselines show."""
    yield from first_units(plan)
    yield from later_units(plan, [case.name for case in plan.anchors])


def _check_first(folder: Path, plan: Plan, digest: str, lines: tuple[Line, ...]) -> None:
    """The plan comes first, and is the one that the ledger began with."""
    if not lines or lines[0].event != "plan":
        raise BundleError(f"{folder / LEDGER}: its first line is not that of the plan")
    if lines[0].digest != digest:
        raise BundleError(f"{folder / PLAN} was changed after the diagnosis began")
    wanted = max(plan.processes * plan.repeats, plan.trials)
    if len(plan.schedules) != wanted:
        raise BundleError(
            f"{folder / PLAN} has {len(plan.schedules)} schedules; its counts ask for {wanted}"
        )
    # Clocks may be set back while a diagnosis runs; the lines follow one another by their digests.
    if any(line.event == "plan" for line in lines[1:]) or plan.written > max(
        line.at for line in lines
    ):
        raise BundleError(f"{folder / PLAN} was written after its trials: a plan comes first")
    names = [case.name for case in plan.cases]
    if len(set(names)) < len(names):
        raise BundleError(f"{folder / PLAN} names a case twice: {', '.join(names)}")
    for case in plan.cases:
        if digest_bytes(msgspec.json.encode(case.case)) != case.digest:
            raise BundleError(f"{folder / PLAN}: the case {case.name} is not as its digest says")


def _named(folder: Path, lines: tuple[Line, ...]) -> list[Line]:
    """Return the lines of files; each is written once, by a launch that had begun."""
    begun = {0}
    named: dict[str, Line] = {}
    for line in lines:
        if line.event == "launch":
            if line.launch != len(begun):
                raise BundleError(
                    f"{folder / LEDGER}: line {line.seq} is launch {line.launch}, after"
                    f" {len(begun) - 1} launches"
                )
            begun.add(line.launch)
        if line.launch not in begun:
            raise BundleError(
                f"{folder / LEDGER}: line {line.seq} is of launch {line.launch}, which never began"
            )
        if line.event != "file":
            continue
        if line.what in named:
            raise BundleError(f"{folder / LEDGER}: {line.what} was written twice")
        named[line.what] = line
    return list(named.values())


def _check_known(folder: Path, plan: Plan, named: frozenset[str]) -> None:
    allowed = {unit.folder for unit in possible_units(plan)}
    states = {name for unit in possible_units(plan) for name in unit.states()}
    for name in named - states - {REFERENCE}:
        if name.rpartition("/")[0] not in allowed:
            raise BundleError(
                f"{folder / LEDGER} names {name!r}: the plan asks for nothing like it"
            )
    known = {PLAN, LEDGER, CONCLUSIONS, MANIFEST, *named}
    for name in files_of(folder):
        if name not in known:
            raise BundleError(f"{folder / name} is unknown: no line of the ledger names it")


def _reference(folder: Path, plan: Plan) -> tuple[TensorRecord, ...] | None:
    if plan.reference is None:
        return None
    data = read_file(folder / REFERENCE)
    if sha256(data) != plan.reference.sha256:
        raise BundleError(f"{folder / REFERENCE} is not the reference of the plan")
    return decoded(folder / REFERENCE, data, tuple[TensorRecord, ...])
