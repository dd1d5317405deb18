"""What follows from the evidence, and the numbers that it follows from."""

from typing import Literal

from swarepro.bundle.schema import OnDisk
from swarepro.compare.arms import ArmVerdict

Answer = Literal[
    "LOCALIZED",
    "PARTIAL",
    "INSUFFICIENT_EVIDENCE",
    "BLOCKED",
    "NOT_REPRODUCED",
    "DETERMINISTIC_BUT_WRONG",
]


class Boundary(OnDisk, frozen=True, kw_only=True):
    """A boundary that varies; ``distinct`` digests of it were seen, in ``classes`` of that size."""

    step: int
    stage: int
    session: int
    name: str
    distinct: int
    classes: tuple[int, ...]


class Varies(OnDisk, frozen=True, kw_only=True):
    """What varies between some trials.

    Attributes:
        trials: how many.
        distinct: how many of them differ in some value.
        boundaries: that were compared.
        varying: of these.
        earliest: the first of any kind, in execution order.
        first_value: the first value.
    """

    trials: int
    distinct: int
    boundaries: int
    varying: int
    earliest: Boundary | None
    first_value: Boundary | None


class Observed(OnDisk, frozen=True, kw_only=True):
    """One observer arm: how the outputs vary when that much is captured.

    Attributes:
        capture: ``off``, ``digest`` or ``tensor``.
        repeats: how many.
        distinct: different outputs among them.
        deviating: repeats whose outputs are not the most frequent ones of all arms together.
    """

    capture: str
    repeats: int
    distinct: int
    deviating: int


class Replayed(OnDisk, frozen=True, kw_only=True):
    """The replay of one step from one frozen state.

    Attributes:
        step: that varies first in the baseline.
        found: what varies between the trials.
        changed: parts of the state that a trial changed and the next restore put back.
    """

    step: int
    found: Varies
    changed: int


class Tried(OnDisk, frozen=True, kw_only=True):
    """A factor on one anchor.

    Attributes:
        factor: its name.
        verdict: see `swarepro.compare.arms`.
        reason: why it does not apply or was refused.
        caution: what a reader of the verdict has to know.
        control: what varies in the step without it.
        treatment: what varies with it.
        chance: that treatments as alike as these come from trials that the factor does not change;
            None unless it stabilises.
    """

    factor: str
    verdict: ArmVerdict
    reason: str | None
    caution: str | None
    control: Varies | None
    treatment: Varies | None
    chance: float | None


class Against(OnDisk, frozen=True, kw_only=True):
    """An anchor's modal repeat against the reference.

    Attributes:
        compared: values that both have.
        differing: of these.
        first: name of the first, with its step, or None.
    """

    compared: int
    differing: int
    first: str | None


class OfCase(OnDisk, frozen=True, kw_only=True):
    """All that was found of one case.

    Attributes:
        case: its name.
        processes: in which its baseline ran.
        baseline: its repeats in all of them.
        ownership: the first violation of the modal repeat, in a sentence, or None.
        observed: its observer arms; none for the control.
        observers_differ: the least probability that two arms deviate at such different rates by
            chance, times the pairs of arms (Bonferroni).
        replay: where its values vary.
        factors: likewise.
        against: the reference, if there is one.
    """

    case: str
    processes: int
    baseline: Varies
    ownership: str | None
    observed: tuple[Observed, ...]
    observers_differ: float | None
    replay: Replayed | None
    factors: tuple[Tried, ...]
    against: Against | None


class Condition(OnDisk, frozen=True, kw_only=True):
    """One thing that the answer rests on, and whether it is met; `OfCase` has the numbers."""

    name: Literal[
        "complete", "reproduced", "observed", "located", "stabilised", "control", "reference"
    ]
    met: bool


class Conclusions(OnDisk, frozen=True, kw_only=True):
    """The answer of a diagnosis; every number in it comes from the evidence.

    Attributes:
        plan: SHA-256 of the plan.
        answer: in a word.
        conditions: that it rests on.
        stabilisers: factors that stabilise every anchor beyond chance.
        order_alone: likewise, those that fix the order of launches: where that order is drawn from
            a seed, they take away what varies, and show that the order matters, not why.
        rejected: factors that ran on every anchor and left it varying.
        chance: the greatest with which a factor counts: that of the plan, by the number of factors
            (Bonferroni).
        anchors: what was found of each.
        control: likewise, or None.
        launches: processes that were started.
        failures: units of work that an error ended, with the error.
    """

    plan: str
    answer: Answer
    conditions: tuple[Condition, ...]
    stabilisers: tuple[str, ...]
    order_alone: tuple[str, ...]
    rejected: tuple[str, ...]
    chance: float
    anchors: tuple[OfCase, ...]
    control: OfCase | None
    launches: int
    failures: dict[str, str]
