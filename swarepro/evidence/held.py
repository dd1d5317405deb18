"""What an evidence folder holds, decoded, and what can be asked of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from swarepro.bundle.digest import digest_bytes
from swarepro.bundle.schema import TensorRecord
from swarepro.compare.determinism import classify
from swarepro.compare.types import Determinism
from swarepro.errors import BundleError
from swarepro.evidence.schema import FactorNote, Line, Plan, ReplayNote, Trial
from swarepro.evidence.units import NOTE, Unit, first_units, index_of, later_units, states_of

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a folder holds, each file decoded and borne out by the ledger.

    Attributes:
        folder: where it is.
        plan: of the diagnosis.
        plan_digest: SHA-256 of its file.
        lines: of the ledger.
        files: names of the files that the ledger names.
        trials: by the name of their file.
        factor_notes: likewise.
        replay_notes: likewise.
        reference: records of the reference, or None.
    """

    folder: Path
    plan: Plan
    plan_digest: str
    lines: tuple[Line, ...]
    files: frozenset[str]
    trials: dict[str, Trial]
    factor_notes: dict[str, FactorNote]
    replay_notes: dict[str, ReplayNote]
    reference: tuple[TensorRecord, ...] | None

    def of(self, unit: Unit, begins: str = "") -> list[Trial]:
        """Return the trials of a unit whose name begins so, in their order by name."""
        found = [name for name in unit.trials(self.plan) if name.startswith(begins)]
        ordered = sorted(found, key=index_of)
        return [self.trials[unit.file(name)] for name in ordered if unit.file(name) in self.trials]

    def baseline(self, case: str) -> Determinism:
        """Return what varies between all repeats of a case, in all of its processes."""
        trials = [
            trial
            for number in range(self.plan.processes)
            for trial in self.of(Unit(case, "baseline", number))
        ]
        return classify([trial.records for trial in trials], [trial.tokens for trial in trials])

    def reproduced(self) -> list[str]:
        """Return the anchors whose values vary in their baseline."""
        names = [case.name for case in self.plan.anchors]
        return [name for name in names if self.baseline(name).first_value_varying is not None]

    def missing(self, unit: Unit) -> list[str]:
        """Return the trials of a unit that have not run, in the order in which they have to."""
        if unit.has_note and unit.file(NOTE) in self.files:
            return []
        return [name for name in unit.trials(self.plan) if unit.file(name) not in self.files]

    def lacking(self, unit: Unit) -> list[str]:
        """Return the files that a unit must have left and has not."""
        note = self.factor_notes.get(unit.file(NOTE))
        if note is not None and note.verdict is not None:
            return []
        wanted = [unit.file(name) for name in unit.trials(self.plan)]
        wanted += [unit.file(NOTE)] if unit.has_note else []
        return [name for name in (*wanted, *unit.states()) if name not in self.files]

    @property
    def unended(self) -> list[int]:
        """The launches of which neither an end nor a loss was noted."""
        ended = {line.launch for line in self.lines if line.event in ("end", "lost")}
        return [
            line.launch
            for line in self.lines
            if line.event == "launch" and line.launch not in ended
        ]

    def is_done(self, unit: Unit) -> bool:
        """Return whether nothing is left to do for a unit."""
        if unit.has_note:
            return unit.file(NOTE) in self.files
        return not self.missing(unit)

    def failures(self) -> dict[Unit, str]:
        """Return what ended the units that are not done, by unit."""
        told = {line.what: line.error or "" for line in self.lines if line.event == "failed"}
        return {
            unit: told[unit.folder]
            for unit in self.expected()
            if not self.is_done(unit) and unit.folder in told
        }

    def expected(self) -> tuple[Unit, ...]:
        """Return the units that the plan, and the baselines if they are done, ask for."""
        first = first_units(self.plan)
        baselines = [unit for unit in first if unit.kind == "baseline"]
        if not all(self.is_done(unit) for unit in baselines):
            return first
        return (*first, *later_units(self.plan, self.reproduced()))

    def processes(self, case: str) -> int:
        """Return in how many processes the baseline of a case ran.

        Raises:
            BundleError: one process ran more than one part of it.
        """
        launches: dict[int, int] = {}
        for number in range(self.plan.processes):
            unit = Unit(case, "baseline", number)
            for trial in self.of(unit):
                if launches.setdefault(trial.launch, number) != number:
                    raise BundleError(
                        f"{self.folder / unit.folder} was run by launch {trial.launch}, which ran"
                        " another part of the baseline: these are no fresh processes"
                    )
        return len(launches)

    def check_alike(self, unit: Unit, *, across_arms: bool) -> None:
        """Raise BundleError unless the trials of a unit, or of each arm, have equal boundaries."""
        seen: dict[str, frozenset[tuple[object, ...]]] = {}
        for name in unit.trials(self.plan):
            trial = self.trials.get(unit.file(name))
            if trial is None:
                continue
            arm = "" if across_arms else name.partition("-")[0]
            places = frozenset((r.step, r.stage, r.session, r.name) for r in trial.records)
            if seen.setdefault(arm, places) != places:
                raise BundleError(
                    f"{self.folder / unit.file(name)} has other boundaries than the trials that it"
                    " is compared with"
                )

    def check_saved_state(self, case: str, state: str) -> None:
        """Raise BundleError unless the saved state of a case has the digests of ``state``."""
        name = states_of(case)[0]
        saved = decoded(self.folder / name, read_file(self.folder / name), _Saved)
        if state_digest(saved.digests) != state:
            raise BundleError(
                f"{self.folder / name} is not the state that the trials of {case} began from"
            )

    def check_one_state(self, unit: Unit, begins: str = "", state: str | None = None) -> str | None:
        """Return the state that the trials of a unit, whose name begins so, began from.

        Raises:
            BundleError: they began from several, or from another than ``state``.
        """
        for name in unit.trials(self.plan):
            if not name.startswith(begins):
                continue
            began = self.trials[unit.file(name)].state
            if state is not None and began != state:
                raise BundleError(
                    f"{self.folder / unit.file(name)} began from another state than the trials that"
                    " it is compared with: nothing follows from a difference"
                )
            state = began
        return state

    @property
    def launches(self) -> int:
        """How many processes were started."""
        return sum(line.event == "launch" for line in self.lines)


class _Saved(msgspec.Struct):
    """All that is wanted of a saved state here."""

    digests: dict[str, str]


_OF_PROCESS = "random state"


def state_digest(state: dict[str, str]) -> str:
    """Return one digest of the digests of a state.

    That of torch's own generator is left out: each process begins with another seed, and no step
    draws from it. In a process it is restored and proved like all else.
    """
    kept = {name: digest for name, digest in state.items() if name != _OF_PROCESS}
    return digest_bytes(msgspec.json.encode(sorted(kept.items())))


def read_file(path: Path) -> bytes:
    """Read a file of evidence. Raises BundleError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise BundleError(
            f"{path} is missing or cannot be read: {error.strerror}",
            hint="`swarepro diagnose CASE --out DIR` writes an evidence folder",
        ) from error


def decoded(path: Path, data: bytes, kind: type[_T]) -> _T:
    """Decode JSON into one of the types on disk. Raises BundleError."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(f"{path} cannot be read: {error}") from error
