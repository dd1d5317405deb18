"""What a treatment does to a step, from the trials of both arms."""

from collections.abc import Mapping, Sequence
from typing import Literal

from swarepro import points
from swarepro.bundle.schema import TensorRecord
from swarepro.compare.types import Determinism
from swarepro.points import PointKind

ArmVerdict = Literal[
    "STABILISES",
    "REJECTED",
    "DESTABILISES",
    "CHANGES_RESULT",
    "NO_EFFECT",
    "NOT_APPLICABLE",
    "REFUSED",
]
"""The last two are of arms that say nothing: one that did not run, one that changed too much."""

Arm = Literal["control", "treatment"]
Compared = Literal["bytes", "tokens"]
"""What two arms that do not vary are compared by: every value, or the chosen tokens alone."""

_INPUTS = (points.INPUT_IDS.name, points.POSITIONS.name)
_OUTPUTS = (points.LOGITS.name, points.BOUNDARY_SEND_HIDDEN.name)


def judge_arms(
    control: Determinism, treatment: Determinism, *, compared: Compared = "bytes"
) -> ArmVerdict:
    """Return what the treatment does to the values of a step, over all trials of both arms.

    STABILISES: the control's values vary, the treatment's do not. REJECTED: both vary.
    DESTABILISES: the treatment's alone vary. Where neither varies: CHANGES_RESULT when their bytes
    differ (or the tokens that they choose, if those alone are ``compared``), else NO_EFFECT. State
    that varies and harms no value is not judged: it is shown.
    """
    varies = tuple(arm.first_value_varying is not None for arm in (control, treatment))
    if varies == (True, False):
        return "STABILISES"
    if varies == (True, True):
        return "REJECTED"
    if varies == (False, True):
        return "DESTABILISES"
    shown = _values if compared == "bytes" else _chosen
    return "NO_EFFECT" if shown(control) == shown(treatment) else "CHANGES_RESULT"


def _values(arm: Determinism) -> list[tuple[int, int, int, str, str]]:
    """Return the digest of every value in an arm in which none varies."""
    return [
        (point.step, point.stage, point.session, point.name, point.modal)
        for point in arm.points
        if point.kind is PointKind.VALUE
    ]


def _chosen(arm: Determinism) -> list[tuple[int, str]]:
    """Return the digest of each session's chosen token in an arm in which no value varies."""
    return [(point.session, point.modal) for point in arm.points if point.name == points.TOKEN.name]


def counterbalanced(trials: int) -> tuple[tuple[Arm, int], ...]:
    """Return arm and number of each trial in the order in which they run: C T T C ..."""
    orders: tuple[tuple[Arm, Arm], ...] = (("control", "treatment"), ("treatment", "control"))
    return tuple((arm, index) for index in range(trials) for arm in orders[index % 2])


def records_of_step(records: Sequence[TensorRecord], step: int) -> list[TensorRecord]:
    """Return the records of one step of a trial, in their order."""
    return [record for record in records if record.step == step]


def changed_before(
    control: Sequence[Sequence[TensorRecord]],
    treatment: Sequence[Sequence[TensorRecord]],
    step: int,
    *,
    outputs: bool = True,
) -> str | None:
    """Say what a treatment changes that it must not, or return None.

    Args:
        control: the records of each trial.
        treatment: likewise.
        step: that is judged. Inputs of the model up to it, and outputs before it, must be among
            those that the control shows.
        outputs: whether outputs are looked at; False for a treatment that rounds differently.
    """
    wanted = _digests(control, step, outputs=outputs)
    for place, digests in _digests(treatment, step, outputs=outputs).items():
        if not digests <= wanted.get(place, frozenset()):
            at, session, name = place
            return (
                f"it changes {name} of step {at}, session {session}, which comes before what is"
                " judged"
            )
    return None


def changed_inputs(
    control: Sequence[Mapping[int, tuple[int, ...]]],
    treatment: Sequence[Mapping[int, tuple[int, ...]]],
) -> str | None:
    """Say in which session a treatment is given other token ids, or return None.

    Args:
        control: of each trial the token ids of all its steps, by session.
        treatment: likewise.
    """
    for given in treatment:
        if given in control:
            continue
        wanted = control[0]
        session = next(s for s in sorted({*wanted, *given}) if wanted.get(s) != given.get(s))
        return f"it changes the token ids that session {session} is given"
    return None


def _digests(
    seen: Sequence[Sequence[TensorRecord]], step: int, *, outputs: bool
) -> dict[tuple[int, int, str], frozenset[str]]:
    """Return the digests of outputs before ``step`` and of inputs up to it, over all trials."""
    found: dict[tuple[int, int, str], set[str]] = {}
    for records in seen:
        for record in records:
            is_output = outputs and record.point in _OUTPUTS and record.step < step
            is_input = record.point in _INPUTS and record.step <= step
            if is_output or is_input:
                place = record.step, record.session, f"{record.name} of stage {record.stage}"
                found.setdefault(place, set()).add(record.digest)
    return {place: frozenset(digests) for place, digests in found.items()}
