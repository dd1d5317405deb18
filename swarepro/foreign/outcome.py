"""From a matching to what a report says of it."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from swarepro.foreign.matching import Matching
from swarepro.foreign.results import RuleOutcome, SpanOutcome
from swarepro.foreign.rules import Rule, Rules
from swarepro.foreign.timeline import Timeline
from swarepro.points import Scope

_SHOWN = 4
_NUMBER = re.compile("[0-9]+")


def rule_outcomes(rules: Rules, matching: Matching) -> tuple[RuleOutcome, ...]:
    """Return what each rule gave, and what it lacks of the steps and layers that others have."""
    steps = {matched.place.step for matched in matching.matched}
    layers = {m.place.layer for m in matching.matched if m.place.layer >= 0}
    return tuple(
        _outcome(number, rules, matching, steps, layers) for number in range(len(rules.points))
    )


def _outcome(
    number: int, rules: Rules, matching: Matching, steps: set[int], layers: set[int]
) -> RuleOutcome:
    rule = rules.points[number]
    own = [matched for matched in matching.matched if matched.place.rule == number]
    of_point = [x.place for x in matching.matched if x.rule.point is rule.point]
    places = {(place.step, place.layer) for place in of_point}
    is_first = own and own[0].place.rule == min(place.rule for place in of_point)
    in_layer = rule.point.scope is Scope.LAYER
    wanted = _wanted(rule, rules, layers) if in_layer else {-1}
    lacking = (
        (step, layer)
        for step in sorted(steps)
        for layer in sorted(wanted)
        if is_first and (step, layer) not in places
    )
    num_lacking = len(steps) * len(wanted) - sum(layer in wanted for _, layer in places)
    return RuleOutcome(
        point=rule.point.name,
        patterns=rule.spec.names,
        boundaries=len(own),
        layers=_ascending(matched.place.layer for matched in own if in_layer),
        steps=_ascending(matched.place.step for matched in own),
        ranks=max((len(by_rank) for matched in own for by_rank in matched.sources), default=0),
        missing=_listed(lacking, num_lacking, in_layer=in_layer),
    )


def _wanted(rule: Rule, rules: Rules, layers: set[int]) -> set[int]:
    """Return the layers that the rules of the same point are for."""
    own = [other.spec.layers for other in rules.points if other.point is rule.point]
    return layers & {layer for part in own for layer in part} if all(own) else layers


def _ascending(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(values)))


def _listed(lacking: Iterator[tuple[int, int]], number: int, *, in_layer: bool) -> str:
    """Name the first of those that are missing; there may be very many."""
    words = [
        f"step {step} layer {layer}" if in_layer else f"step {step}"
        for step, layer in islice(lacking, _SHOWN)
    ]
    rest = number - _SHOWN
    return ", ".join(words) + (f" and {rest:,} more" if words and rest > 0 else "")


def unmatched_names(matching: Matching) -> tuple[tuple[str, int], ...]:
    """Return the names that no rule takes, numbers as N, with how many there are of each."""
    names = Counter(_NUMBER.sub("N", item.name) for item in matching.unmatched)
    return tuple(names.most_common())


def span_outcomes(timeline: Timeline) -> tuple[SpanOutcome, ...]:
    """Return every span, in execution order."""
    return tuple(
        SpanOutcome(
            step=step.index,
            number=number,
            phase=span.phase or step.phase,
            session=span.session,
            start=span.start,
            end=span.end,
        )
        for number, step in zip(timeline.numbers, timeline.steps, strict=True)
        for span in step.spans
    )
