"""The types of an evidence folder on disk; see docs/evidence-format.md. No torch here."""

from typing import Annotated, Any, Literal

import msgspec

from swarepro.bundle.schema import Environment, OnDisk, TensorRecord, Violation
from swarepro.compare.arms import Compared

PLAN = "plan.json"
LEDGER = "ledger.jsonl"
REFERENCE = "reference.json"
CONCLUSIONS = "conclusions.json"
MANIFEST = "MANIFEST.sha256"
TRIALS = "trials"
Event = Literal["plan", "launch", "file", "failed", "end", "lost"]
Positive = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
STATES = "states"


class PlannedCase(OnDisk, frozen=True, kw_only=True):
    """A case of a diagnosis.

    Attributes:
        name: of the case, and of its folder of trials.
        digest: XXH3-128 of ``case``, as compact JSON.
        case: all of it, as JSON data.
    """

    name: str
    digest: str
    case: dict[str, Any]


class PlannedFactor(OnDisk, frozen=True, kw_only=True):
    """A factor of a diagnosis.

    Attributes:
        name: as in ``--factor NAME``.
        summary: what it changes.
        compared: what two arms that do not vary are compared by; ``tokens`` of one that rounds
            differently.
        own_steps: whether its trials run other steps than the case, so that the token ids that go
            in are what it must leave alone.
        schedule: under which its treatments run; None = under that of the control.
    """

    name: str
    summary: str
    compared: Compared
    own_steps: bool
    schedule: str | None


class HowRun(OnDisk, frozen=True, kw_only=True):
    """How all cases of a diagnosis are run.

    Attributes:
        faults: injected into each.
        device: that runs them.
        route: the attention implementation.
        ownership: whether the shadow watches.
    """

    faults: tuple[str, ...]
    device: str
    route: str
    ownership: bool


class PlannedReference(OnDisk, frozen=True, kw_only=True):
    """A bundle that the anchor is judged against; ``sha256`` is of `REFERENCE`, its records."""

    source: str
    sha256: str


class Plan(OnDisk, frozen=True, kw_only=True):
    """What a diagnosis is going to do; written before anything runs.

    Attributes:
        written: UTC.
        code: SHA-256 of the program's own source files.
        environment: in which it is going to run.
        anchors: cases that are suspected to vary.
        control: a case that is not, or None.
        how: all of them run.
        processes: R, fresh ones of the baseline, for each case.
        repeats: N, in each of these processes.
        trials: of a replay, and of each arm of a factor.
        factors: in the order in which they are tried.
        schedules: of repeat n of the baseline and of each observer arm, and of trial n of a replay
            and of each arm of a factor, by n.
        chance: a factor counts as stabilising only where treatments as alike as these would come
            from unchanged trials with at most this probability.
        reference: what a deterministic anchor is compared with, or None.
    """

    format: Literal["swarepro-evidence/1"] = "swarepro-evidence/1"
    written: str
    code: str
    environment: Environment
    anchors: Annotated[tuple[PlannedCase, ...], msgspec.Meta(min_length=1)]
    control: PlannedCase | None
    how: HowRun
    processes: Positive
    repeats: Positive
    trials: Positive
    factors: tuple[PlannedFactor, ...]
    schedules: tuple[str, ...]
    chance: float
    reference: PlannedReference | None

    @property
    def cases(self) -> tuple[PlannedCase, ...]:
        """The anchors and the control."""
        return self.anchors if self.control is None else (*self.anchors, self.control)


class Trial(OnDisk, frozen=True, kw_only=True):
    """One run of a case, or of one of its steps.

    Attributes:
        plan: SHA-256 of the plan.
        launch: number of the process that ran it.
        schedule: that ordered its launches.
        state: digest of the state that it began from; None for a run from scratch.
        step: that is judged; None where all of them are.
        records: the digests of what it captured.
        tokens: generated until its end, all sessions in order.
        violations: of slot ownership, in execution order.
        changed: parts of the state that a replay's trial changed; that a restore puts them back was
            proved before the trial was written.
        inputs: of a trial of a factor, the token ids that went into the model, by session.
    """

    plan: str
    launch: int
    schedule: str
    state: str | None
    step: int | None = None
    records: tuple[TensorRecord, ...]
    tokens: tuple[int, ...]
    violations: tuple[Violation, ...] = ()
    changed: tuple[str, ...] = ()
    inputs: dict[int, tuple[int, ...]] | None = None


class FactorNote(OnDisk, frozen=True, kw_only=True):
    """What came of a factor on one anchor, written when its trials are done.

    Attributes:
        plan: SHA-256 of the plan.
        launch: number of the process that wrote it.
        verdict: None when both arms ran, else why there are no trials to judge.
        reason: of the verdict.
        caution: what a reader of the verdict has to know about what ran.
    """

    plan: str
    launch: int
    verdict: Literal["NOT_APPLICABLE", "REFUSED"] | None
    reason: str | None
    caution: str | None


class ReplayNote(OnDisk, frozen=True, kw_only=True):
    """Written when a replay's trials are done.

    Attributes:
        plan: SHA-256 of the plan.
        launch: number of the process that wrote it.
        state: digest of the frozen state that all of them began from.
    """

    plan: str
    launch: int
    state: str


class Line(OnDisk, frozen=True, kw_only=True):
    """One line of the ledger.

    Attributes:
        seq: number of the line, from 0.
        at: UTC.
        event: ``plan`` is the first; a ``launch`` is a process that starts, ``end`` one that ended
            by itself, ``lost`` one of which nothing more was heard; ``file`` is written whole;
            ``failed`` says what ended a unit of work.
        launch: number of the process, from 1; 0 = of no process.
        what: the file, or the unit of work.
        digest: SHA-256 of the file.
        error: what ended it.
        previous: SHA-256 of the line before, without its end; empty for the first.
    """

    seq: int
    at: str
    event: Event
    launch: int
    what: str
    digest: str | None
    error: str | None
    previous: str
