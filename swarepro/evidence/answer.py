"""The answer of a diagnosis, and the conditions that it rests on."""

from collections.abc import Iterator
from dataclasses import dataclass

from swarepro.compare.arms import ArmVerdict
from swarepro.evidence.conclusions import Answer, Condition, OfCase
from swarepro.evidence.schema import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found of each case; no anchors where a baseline is lacking."""

    plan: Plan
    failures: dict[str, str]
    anchors: tuple[OfCase, ...]
    control: OfCase | None

    @property
    def reproduced(self) -> tuple[OfCase, ...]:
        """The anchors whose values vary in their baseline."""
        return tuple(each for each in self.anchors if each.baseline.first_value is not None)

    @property
    def located(self) -> tuple[OfCase, ...]:
        """The anchors whose values vary in the replay, so that it shows where that begins."""
        return tuple(
            each
            for each in self.reproduced
            if each.replay is not None and each.replay.found.first_value is not None
        )

    @property
    def hidden(self) -> tuple[OfCase, ...]:
        """The anchors that vary under another capture than the baseline's, and not in that."""
        return tuple(
            each
            for each in self.anchors
            if each.baseline.first_value is None and any(arm.distinct > 1 for arm in each.observed)
        )

    @property
    def wrong(self) -> tuple[OfCase, ...]:
        """The anchors that differ from the reference."""
        return tuple(
            each for each in self.anchors if each.against is not None and each.against.differing
        )

    @property
    def control_is_stable(self) -> bool:
        """Whether there is a control whose values do not vary."""
        return self.control is not None and self.control.baseline.first_value is None

    @property
    def chance(self) -> float:
        """The greatest chance with which a factor counts as stabilising."""
        return self.plan.chance / max(1, len(self.plan.factors))

    @property
    def stabilisers(self) -> tuple[str, ...]:
        """The factors that stabilise every anchor, but those that fix the order of launches."""
        names = self.on_every_anchor("STABILISES")
        return tuple(name for name in names if name not in self.order_alone)

    @property
    def order_alone(self) -> tuple[str, ...]:
        """The factors that stabilise every anchor by fixing the order of launches."""
        fixed = {factor.name for factor in self.plan.factors if factor.schedule is not None}
        return tuple(name for name in self.on_every_anchor("STABILISES") if name in fixed)

    def on_every_anchor(self, verdict: ArmVerdict) -> tuple[str, ...]:
        """Return the factors of which every anchor gives the verdict, as sure as is asked for."""
        return tuple(
            factor.name
            for factor in self.plan.factors
            if self.anchors
            and all(self._gives(each, factor.name, verdict) for each in self.anchors)
        )

    def _gives(self, each: OfCase, factor: str, verdict: ArmVerdict) -> bool:
        return any(
            tried.factor == factor
            and tried.verdict == verdict
            and (tried.chance is None or tried.chance <= self.chance)
            for tried in each.factors
        )


def answer_of(found: Found) -> Answer:
    """Return the answer.

    A replay never stands in for the baseline: where values do not vary there, nothing is located.
    """
    if found.failures:
        return "BLOCKED"
    if not found.reproduced:
        if found.hidden:
            return "INSUFFICIENT_EVIDENCE"
        return "DETERMINISTIC_BUT_WRONG" if found.wrong else "NOT_REPRODUCED"
    if not found.located:
        return "INSUFFICIENT_EVIDENCE"
    everywhere = len(found.located) == len(found.anchors)
    if everywhere and found.stabilisers and found.control_is_stable:
        return "LOCALIZED"
    return "PARTIAL"


def conditions_of(found: Found) -> tuple[Condition, ...]:
    """Return every condition that was looked at, and whether it is met."""
    return tuple(_conditions(found))


def _conditions(found: Found) -> Iterator[Condition]:
    yield Condition(name="complete", met=not found.failures)
    if not found.anchors:
        return
    yield Condition(name="reproduced", met=len(found.reproduced) == len(found.anchors))
    yield Condition(
        name="observed", met=not any(_observers_matter(found.plan, x) for x in found.anchors)
    )
    if found.reproduced:
        yield Condition(name="located", met=len(found.located) == len(found.anchors))
        yield Condition(name="stabilised", met=bool(found.stabilisers))
        yield Condition(name="control", met=found.control_is_stable)
    if found.plan.reference is not None:
        compared = all(x.against is not None and x.against.compared for x in found.anchors)
        yield Condition(name="reference", met=compared and not found.wrong)


def _observers_matter(plan: Plan, each: OfCase) -> bool:
    """Return whether the outputs vary otherwise when more or less of the run is captured."""
    if any((arm.distinct > 1) != (each.observed[0].distinct > 1) for arm in each.observed):
        return True
    return each.observers_differ is not None and each.observers_differ <= plan.chance
