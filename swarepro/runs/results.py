"""What runs give back. No torch here."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from swarepro.bundle.schema import Manifest, StageEntry, StageOwnership, Violation
from swarepro.case import CaseSpec
from swarepro.compare.arms import Arm, ArmVerdict, Compared
from swarepro.compare.types import Against, Determinism


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One finished run.

    Attributes:
        bundle: its folder.
        manifest: as it was written.
        texts: the generated tokens as text, by session; None where the prompt was no text.
        unmatched: globs of points that were asked for and match nothing that this run has.
        against: how it compares with the baseline that it was run against, if there was one.
    """

    bundle: Path
    manifest: Manifest
    texts: tuple[str | None, ...]
    unmatched: tuple[str, ...] = ()
    against: Against | None = None

    @property
    def violations(self) -> int:
        """Number of ownership violations in all stages."""
        return sum(len(stage.violations) for stage in self.manifest.ownership)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatResult:
    """N finished repeats.

    Attributes:
        determinism: what varies between them.
        ownership: of the modal repeat, by stage.
        kept: bundles of the modal and of one deviating repeat, where they were asked for.
    """

    determinism: Determinism
    ownership: tuple[StageOwnership, ...]
    kept: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipResult:
    """What the ownership shadow saw in one run.

    Attributes:
        case: its name.
        stages: that ran.
        ownership: by stage and KV group, at the end.
        steps: of the plan.
        steps_done: that were finished.
        error: with which the runtime ended the run, or None.
        hint: what to do about the error, as far as the runtime knows.
    """

    case: str
    stages: tuple[StageEntry, ...]
    ownership: tuple[StageOwnership, ...]
    steps: int
    steps_done: int
    error: str | None
    hint: str | None

    @property
    def violations(self) -> tuple[Violation, ...]:
        """All of them, in execution order."""
        found = [violation for owned in self.ownership for violation in owned.violations]
        return tuple(sorted(found, key=lambda violation: violation.order))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutput:
    """The last boundary of one step, for one session."""

    step: int
    session: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """What N trials of one step from one frozen state showed.

    Attributes:
        case: its name.
        step: that was replayed.
        trials: N.
        determinism: what varies between the trials.
        schedules: of the trials.
        varying_outputs: outputs of the steps before it that differ between runs from scratch; where
            there are any, one frozen state does not stand for them, and the harness is invalid.
        prefix_runs: runs from scratch that were compared for that; 0 = the frozen state is a saved
            one, and they were compared when it was saved.
        saved: folder of the frozen state, where it was saved to or read from.
        state: number of things that the state is made of, each with a digest.
        changed: those that a trial changed; restoring them was proved.
        rows_restored: rows of the pools that were copied, over all trials.
        ownership: of the modal trial, by stage and KV group.
    """

    case: str
    step: int
    trials: int
    determinism: Determinism
    schedules: tuple[str, ...]
    varying_outputs: tuple[StepOutput, ...]
    prefix_runs: int
    saved: Path | None
    state: int
    changed: tuple[str, ...]
    rows_restored: int
    ownership: tuple[StageOwnership, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run of one arm; ``order`` is its place among all trials of the factor."""

    order: int
    arm: Arm
    schedule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorResult:
    """What one factor does to the target step.

    Attributes:
        factor: its name.
        summary: what it changes.
        scope: from which state its trials begin.
        verdict: see `swarepro.compare.arms`.
        reason: why it does not apply, or was refused; None otherwise.
        caution: what a reader of the verdict has to know, or None.
        compared: what arms that do not vary are compared by.
        control: what varies in the target step without it; None where it was not judged.
        treatment: what varies with it, likewise.
        trials: in the order in which they ran.
    """

    factor: str
    summary: str
    scope: str
    verdict: ArmVerdict
    reason: str | None
    caution: str | None
    compared: Compared
    control: Determinism | None
    treatment: Determinism | None
    trials: tuple[Trial, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InterveneResult:
    """What each of some factors does to one step of a case.

    Attributes:
        case: its name.
        step: whose values are judged.
        trials: of each arm.
        varying_outputs: outputs of the steps before it that differ between runs from scratch; where
            there are any, the harness is invalid and no factor was tried.
        factors: in the order in which they were tried.
    """

    case: str
    step: int
    trials: int
    varying_outputs: tuple[StepOutput, ...]
    factors: tuple[FactorResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionRow:
    """What each detector answers to one case's fault; ``@3 NAME`` is boundary NAME at step 3.

    Attributes:
        mechanism: of the reports that the fault belongs to, or empty.
        ownership: first violation, in one run.
        diff: first divergence from the healthy run, of the strongest kind: value, state, metadata.
        floor: what it is against a noise floor.
        determinism: of repeats.
        fill: of the fill probe.
        healthy_error: with which the runtime rightly refuses the healthy arm, or None.
    """

    case: str
    summary: str
    fault: str | None
    mechanism: str
    ownership: str
    diff: str
    floor: str
    determinism: str
    fill: str
    healthy_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One expectation of a case against what was found."""

    arm: Literal["healthy", "faulty", "diff"]
    what: str
    wanted: str
    found: str
    ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """A case judged by its own [expect]."""

    case: CaseSpec
    checks: tuple[CheckResult, ...]

    @property
    def ok(self) -> bool:
        """Whether every expectation was met; a case without checks is not ok."""
        return bool(self.checks) and all(check.ok for check in self.checks)
