"""What one process of a diagnosis does: units of work, a file for each trial."""

import fcntl
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Literal

import msgspec

from swarepro import points
from swarepro.build import Execution, RunOutcome
from swarepro.bundle.schema import CaptureEntry, TensorRecord
from swarepro.capture import MemorySink
from swarepro.case import convert_case
from swarepro.compare.arms import Arm
from swarepro.errors import ExitCode, IncomparableError, SwareproError
from swarepro.evidence import ledger
from swarepro.evidence.check import load_evidence
from swarepro.evidence.folder import write_once
from swarepro.evidence.held import Evidence, state_digest
from swarepro.evidence.schema import (
    LEDGER,
    STATES,
    FactorNote,
    Plan,
    ReplayNote,
    Trial,
)
from swarepro.evidence.units import NOTE, Unit, index_of, states_of
from swarepro.interventions import FACTORS
from swarepro.options import RunOptions, no_progress
from swarepro.runs.children import take_signals
from swarepro.runs.factor_trials import FactorTrials, evidence_options
from swarepro.runs.once import execution, run_in_memory, violation_entry
from swarepro.runs.prefix import prefix_run, prefix_runs
from swarepro.runs.prepare import Prepared, prepare
from swarepro.runs.repeat import flat_tokens, schedule_of
from swarepro.runs.saved_state import adopt_state, read_state, save_state
from swarepro.runs.step_trials import StepTrials

_KEPT = frozenset(
    point.name
    for point in (
        *(points.INPUT_IDS, points.POSITIONS),
        *(points.LOGITS, points.BOUNDARY_SEND_HIDDEN),
    )
)
"""Points whose records are kept at every step: what a factor must not change is judged by them."""


def work(folder: Path, launch: int, units: Sequence[Unit]) -> None:
    """Do the units, as a process that a diagnosis started; what ends one is in the ledger."""
    try:
        _work(folder, launch, units)
    except (OSError, SwareproError):
        # Nothing can be written, or read: the process that started this one finds the same.
        sys.exit(ExitCode.CANNOT_JUDGE)


def _work(folder: Path, launch: int, units: Sequence[Unit]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one decides
    take_signals()
    _end_with_parent()
    with (folder / LEDGER).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_SH)  # who goes on after a kill waits for this process's end
        # What a unit of a launch needs is not written by another one of it.
        evidence = load_evidence(folder)
        prepared: dict[str, Prepared] = {}
        for unit in units:
            try:
                if unit.case not in prepared:
                    prepared[unit.case] = _prepared(evidence.plan, unit.case)
                _Work(evidence, prepared[unit.case], launch, unit).do()
            except SwareproError as error:
                _failed(folder, launch, unit, error.message)
            except OSError as error:
                _failed(folder, launch, unit, f"{error.filename}: {error.strerror}")
            except Exception as error:  # a defect of ours is no finding, and must not end the rest
                _failed(folder, launch, unit, f"internal error: {type(error).__name__}: {error}")


def _prepared(plan: Plan, name: str) -> Prepared:
    """Prepare a case of the plan, with everything captured as digests."""
    planned = next(case for case in plan.cases if case.name == name)
    how = plan.how
    options = RunOptions(
        faults=how.faults, device=how.device, route=how.route, ownership=how.ownership
    )
    case = convert_case(planned.case, source=f"the case {name} of the plan")
    return prepare(case, evidence_options(options), copies=0, progress=no_progress)


def _failed(folder: Path, launch: int, unit: Unit, message: str) -> None:
    ledger.append(folder, "failed", launch=launch, what=unit.folder, error=message)


def _end_with_parent() -> None:
    """End at once when the process that started this one has ended, however it did."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class _Work:
    """One unit, in one process."""

    def __init__(self, evidence: Evidence, prepared: Prepared, launch: int, unit: Unit) -> None:
        self._evidence, self._prepared = evidence, prepared
        self._launch, self._unit = launch, unit
        self._folder, self._plan = evidence.folder, evidence.plan
        self._missing = evidence.missing(unit)

    def do(self) -> None:
        """Run the trials that are missing, and write the note that says that all is done."""
        doing: dict[str, Callable[[], None]] = {
            "baseline": self._baseline,
            "observer": self._observer,
            "replay": self._replay,
            "factor": self._factor,
        }
        doing[self._unit.kind]()

    def _baseline(self) -> None:
        for name in self._missing:
            schedule = schedule_of(self._prepared, index_of(name))
            records, outcome = run_in_memory(
                self._prepared, schedule=schedule, on_step=lambda step: None
            )
            self._write_run(name, schedule, records, outcome)

    def _observer(self) -> None:
        captures = _captures(self._prepared.capture)
        last = len(self._prepared.plan.stages) - 1
        for name in self._missing:
            capture = captures[name.partition("-")[0]]
            schedule = schedule_of(self._prepared, index_of(name))
            records, outcome = run_in_memory(
                replace(self._prepared, capture=capture),
                schedule=schedule,
                on_step=lambda step: None,
            )
            outputs = tuple(
                record
                for record in records
                if record.stage == last
                and record.point in (points.LOGITS.name, points.BOUNDARY_SEND_HIDDEN.name)
            )
            self._write_run(name, schedule, outputs, outcome)

    def _replay(self) -> None:
        step = self._step()
        run = self._state_before(step)
        trials = StepTrials(self._prepared, run, step)
        state = state_digest(trials.before)
        for name in self._missing:
            ran = trials.run(index_of(name))
            trials.finish()
            if not ran.changed:
                raise IncomparableError(
                    f"step {step} changes no state: restoring it proves nothing"
                )
            violations = [v for owned in ran.ownership for v in owned.violations]
            self._write(
                name,
                Trial(
                    plan=self._evidence.plan_digest,
                    launch=self._launch,
                    schedule=ran.schedule,
                    state=state,
                    step=step,
                    records=ran.records,
                    tokens=ran.tokens,
                    violations=tuple(sorted(violations, key=lambda violation: violation.order)),
                    changed=tuple(sorted(ran.changed)),
                ),
            )
        note = ReplayNote(plan=self._evidence.plan_digest, launch=self._launch, state=state)
        self._write(NOTE, note)

    def _factor(self) -> None:
        step = self._step()
        name = self._plan.factors[self._unit.number].name
        factor = FACTORS.get(name)
        bench = FactorTrials(
            self._prepared, factor, step, standing_before=lambda: self._state_before(step)
        )
        if bench.reason is not None:
            self._note("NOT_APPLICABLE", bench.reason)
            return
        for name in self._missing:
            arm: Arm = "treatment" if name.startswith("treatment") else "control"
            try:
                ran = bench.run(arm, index_of(name))
            except SwareproError as error:
                if arm == "control":
                    raise
                self._note("REFUSED", f"it ends with an error: {error.message}")
                return
            kept = tuple(r for r in ran.records if r.step == ran.step or r.point in _KEPT)
            self._write(
                name,
                Trial(
                    plan=self._evidence.plan_digest,
                    launch=self._launch,
                    schedule=ran.schedule,
                    state=state_digest(ran.state),
                    step=ran.step,
                    records=kept,
                    tokens=ran.tokens,
                    violations=tuple(violation_entry(each) for each in ran.violations),
                    inputs=ran.inputs,
                ),
            )
        self._note(None, None, caution=factor.caution(bench.ran))

    def _step(self) -> int:
        """Return the step whose values vary first in the baseline."""
        first = self._evidence.baseline(self._unit.case).first_value_varying
        if first is None:
            raise IncomparableError(f"no value of {self._unit.case} varies in its baseline")
        return first.step

    def _state_before(self, step: int) -> Execution:
        """Return an execution that stands before ``step``: the saved state, which is made once."""
        folder = self._folder / STATES / self._unit.case
        schedule = schedule_of(self._prepared, 0)
        if folder.exists():
            run = execution(self._prepared, MemorySink([]), schedule=schedule)
            adopt_state(folder, read_state(folder), run, route=self._prepared.route)
            return run
        run, varying = prefix_run(self._prepared, step, progress=no_progress)
        if varying:
            first = varying[0]
            raise IncomparableError(
                f"step {first.step}, session {first.session}, {first.name} varies between runs from"
                f" scratch, so one frozen state does not stand for what comes before step {step}"
            )
        save_state(
            folder,
            run,
            self._prepared,
            step=step,
            schedule=schedule,
            prefix_runs=prefix_runs(step),
        )
        for name in states_of(self._unit.case):
            digest = ledger.sha256((self._folder / name).read_bytes())
            ledger.append(self._folder, "file", launch=self._launch, what=name, digest=digest)
        return run

    def _write_run(
        self, name: str, schedule: str, records: tuple[TensorRecord, ...], outcome: RunOutcome
    ) -> None:
        self._write(
            name,
            Trial(
                plan=self._evidence.plan_digest,
                launch=self._launch,
                schedule=schedule,
                state=None,
                records=records,
                tokens=flat_tokens(outcome.tokens),
                violations=tuple(violation_entry(each) for each in outcome.violations),
            ),
        )

    def _note(
        self,
        verdict: Literal["NOT_APPLICABLE", "REFUSED"] | None,
        reason: str | None,
        *,
        caution: str | None = None,
    ) -> None:
        note = FactorNote(
            plan=self._evidence.plan_digest,
            launch=self._launch,
            verdict=verdict,
            reason=reason,
            caution=caution,
        )
        self._write(NOTE, note)

    def _write(self, name: str, content: Trial | FactorNote | ReplayNote) -> None:
        write_once(self._folder, self._unit.file(name), content, launch=self._launch)


def _captures(full: CaptureEntry) -> dict[str, CaptureEntry]:
    """Return the captures of the observer arms; tensors are copied to the host, and let go."""
    return {
        "off": msgspec.structs.replace(full, level=points.Level.OFF),
        "digest": full,
        "tensor": msgspec.structs.replace(full, store="tensor"),
    }
