"""What one-variable treatments do to a step, in words and as data."""

from collections.abc import Sequence
from typing import Any, Protocol

from swarepro.compare.types import BoundaryClasses, Determinism
from swarepro.report.jsonout import determinism_document
from swarepro.report.model import Grid, Report, Tone
from swarepro.report.repeats import classes
from swarepro.report.words import MISSING, count, listed, literal

_MEANS = {
    "STABILISES": "the control varies and the treatment does not",
    "REJECTED": "both vary",
    "DESTABILISES": "the treatment alone varies",
    "CHANGES_RESULT": "neither varies, and their {compared} differ",
    "NO_EFFECT": "neither varies, and their {compared} are the same",
}
_COMPARED = {"bytes": "bytes", "tokens": "chosen tokens"}
_GROUPS = {
    "STABILISES": "stabilised by",
    "REJECTED": "rejected",
    "DESTABILISES": "made to vary by",
    "CHANGES_RESULT": "result changed by",
    "REFUSED": "refused",
    "NOT_APPLICABLE": "not applicable",
}
"""How the headline calls the factors with a verdict; one that has no effect is not named."""
_FINDINGS = ("DESTABILISES", "CHANGES_RESULT")
_LONGEST = 24


class Result(Protocol):
    """What is shown of a factor; `swarepro.runs.results.FactorResult` is one."""

    @property
    def factor(self) -> str:
        """Its name."""

    @property
    def summary(self) -> str:
        """What it changes."""

    @property
    def scope(self) -> str:
        """From which state."""

    @property
    def verdict(self) -> str:
        """What it does."""

    @property
    def reason(self) -> str | None:
        """Why it says nothing."""

    @property
    def caution(self) -> str | None:
        """What a reader of the verdict has to know."""

    @property
    def compared(self) -> str:
        """What arms that do not vary are compared by: ``bytes`` or ``tokens``."""

    @property
    def control(self) -> Determinism | None:
        """Without it."""

    @property
    def treatment(self) -> Determinism | None:
        """With it."""


def intervene_report(
    factors: Sequence[Result],
    *,
    case: str,
    step: int,
    trials: int,
    order: str,
    varying_outputs: Sequence[tuple[int, int, str]] = (),
) -> Report:
    """Say what each factor does to the values of a step.

    Args:
        factors: in the order in which they were tried.
        case: its name.
        step: whose values are judged.
        trials: of each arm.
        order: of the trials, e.g. ``"C T T C"``.
        varying_outputs: step, session and name of outputs before it that differ between runs from
            scratch; any makes the harness invalid.
    """
    if varying_outputs:
        first_step, session, name = varying_outputs[0]
        return Report(
            headline=(
                f"INVALID: step {first_step}, session {session}, {literal(name)} varies between"
                " runs from scratch, so one state does not stand for what comes before step"
                f" {step}. No factor was tried."
            ),
            tone=Tone.UNSURE,
            grids=(),
            lines=(),
            commands=(f"swarepro intervene {literal(case)} --step {first_step}",),
        )
    rows = tuple(
        (
            _short(each.factor),
            each.verdict,
            _varying(each.control),
            _varying(each.treatment),
        )
        for each in factors
    )
    meanings = Grid(
        title="What each changes, and why it is judged so",
        columns=("factor", "from", "what", "because"),
        rows=tuple((_short(x.factor), x.scope, literal(x.summary), _because(x)) for x in factors),
    )
    return Report(
        headline=_headline(factors, step),
        tone=_tone(factors),
        grids=(
            Grid(
                title="",
                columns=("factor", "verdict", "control", "treatment"),
                rows=rows,
            ),
            meanings,
        ),
        lines=(
            f"Case {literal(case)}: step {step}, {count(trials, 'trial')} of each arm in the order"
            f" {order} ..., each from restored state. A factor from the start is there from the"
            " first step on, and must leave every model input as it is and every output before the"
            " step, unless it rounds differently by its nature; one from the target is there in"
            " that step alone.",
        ),
    )


def control_varies(factors: Sequence[Result]) -> bool:
    """Return whether the step's values vary without a treatment."""
    return any(x.control is not None and x.control.first_value_varying for x in factors)


def is_finding(factors: Sequence[Result]) -> bool:
    """Return whether something was found: values vary, or a treatment does something to them."""
    return control_varies(factors) or any(x.verdict in _FINDINGS for x in factors)


def _tone(factors: Sequence[Result]) -> Tone:
    if not any(x.control for x in factors):
        return Tone.UNSURE
    return Tone.BAD if is_finding(factors) else Tone.GOOD


def _headline(factors: Sequence[Result], step: int) -> str:
    groups = {verdict: [x.factor for x in factors if x.verdict == verdict] for verdict in _GROUPS}
    said = [
        f"{words}: {listed(groups[verdict], most=8, empty='nothing that was tried')}"
        for verdict, words in _GROUPS.items()
        if groups[verdict] or (verdict == "STABILISES" and control_varies(factors))
    ]
    named = "; ".join(said)
    named = f" {named[0].upper()}{named[1:]}." if named else ""
    if not any(x.control for x in factors):
        return f"Nothing is said of step {step}: no factor that was named could be judged.{named}"
    if control_varies(factors):
        return f"The values of step {step} vary.{named}"
    return f"The values of step {step} do not vary: there is nothing to stabilise.{named}"


def _because(found: Result) -> str:
    if found.reason is not None:
        return literal(found.reason)
    means = _MEANS[found.verdict].format(compared=_COMPARED[found.compared])
    return means if found.caution is None else f"{means}; {found.caution}"


def _short(name: str) -> str:
    """Return a name that leaves room for the other columns; the headline has it in full."""
    shown = literal(name)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 3]}..."


def _varying(arm: Determinism | None) -> str:
    if arm is None:
        return MISSING
    first: BoundaryClasses | None = arm.first_value_varying
    if first is None:
        return f"1 of {arm.repeats}"
    return f"{first.distinct} of {arm.repeats} ({classes(first)}) from {literal(first.name)}"


def intervene_document(
    factors: Sequence[Result],
    *,
    case: str,
    step: int,
    trials: int,
    orders: Sequence[Any],
    varying_outputs: Sequence[tuple[int, int, str]] = (),
) -> dict[str, Any]:
    """Return what `swarepro intervene --json` prints; ``orders`` lists each factor's trials."""
    return {
        "case": case,
        "step": step,
        "trials": trials,
        "valid": not varying_outputs,
        "varying_outputs": [
            {"step": at, "session": session, "name": name} for at, session, name in varying_outputs
        ],
        "control_varies": control_varies(factors),
        "factors": [
            {
                "factor": each.factor,
                "summary": each.summary,
                "scope": each.scope,
                "verdict": each.verdict,
                "reason": each.reason,
                "caution": each.caution,
                "compared": each.compared,
                "control": _arm(each.control),
                "treatment": _arm(each.treatment),
                "trials": list(ran),
            }
            for each, ran in zip(factors, orders, strict=True)
        ],
    }


def _arm(arm: Determinism | None) -> dict[str, Any] | None:
    return None if arm is None else determinism_document(arm, kept=())
