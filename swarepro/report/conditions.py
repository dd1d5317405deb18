"""What the answer of a diagnosis rests on, in words and numbers."""

from swarepro.evidence.conclusions import Boundary, Conclusions, OfCase, Varies
from swarepro.report.words import count, listed


def condition_sentence(found: Conclusions, name: str) -> str:
    """Say by what a condition of the conclusions is met, or is not."""
    if name == "complete":
        ended = "; ".join(f"{unit}: {error}" for unit, error in found.failures.items())
        return ended or "every unit of work was finished"
    if name == "stabilised":
        return _stabilised(found)
    if name == "control":
        return "no control was run" if found.control is None else _reproduced(found.control)
    say = {
        "reproduced": _reproduced,
        "observed": _observed,
        "located": _located,
        "reference": _against,
    }[name]
    cases = found.anchors
    if name == "located":
        cases = tuple(case for case in cases if case.baseline.first_value is not None)
    return "; ".join(say(case) for case in cases)


def _reproduced(each: OfCase) -> str:
    first = each.baseline.first_value
    processes = "1 process" if each.processes == 1 else f"{each.processes} processes"
    ran = f"{count(each.baseline.trials, 'repeat')} in {processes}"
    if first is None:
        return f"{each.case}: no value varies in {ran}"
    return f"{each.case}: {_place(first)} is {first.distinct} distinct of {ran}"


def _observed(each: OfCase) -> str:
    arms = ", ".join(
        f"{arm.capture} {arm.deviating} of {arm.repeats} deviate" for arm in each.observed
    )
    chance = "" if each.observers_differ is None else f" (p = {each.observers_differ:.2g})"
    return f"{each.case}: {arms}{chance}"


def _located(each: OfCase) -> str:
    if each.replay is None:
        return f"{each.case}: not replayed"
    ran = f"{each.replay.found.trials} trials from one restored state"
    first = each.replay.found.earliest
    if each.replay.found.first_value is None or first is None:
        return f"{each.case}: no value varies in {ran}"
    return f"{each.case}: {_place(first)} is {first.distinct} distinct of {ran}"


def _stabilised(found: Conclusions) -> str:
    shown = []
    if not found.stabilisers:
        limit = f"with a chance of at most {found.chance:.2g}"
        order = ""
        if found.order_alone:
            names = listed(found.order_alone, most=4)
            order = f"; {names} does, and shows that the order of launches matters, not why"
        return f"no factor shows a cause on every anchor {limit}{order}"
    for name in found.stabilisers:
        tried = [(each, t) for each in found.anchors for t in each.factors if t.factor == name]
        arms = ", ".join(
            f"{each.case} {_distinct(t.control)} without and {_distinct(t.treatment)} with it"
            f" (chance {t.chance:.2g})"
            for each, t in tried
        )
        shown.append(f"{name}: {arms}")
    return "; ".join(shown)


def _distinct(arm: Varies | None) -> str:
    if arm is None:
        return "-"
    return f"{arm.distinct} of {arm.trials}"


def _against(each: OfCase) -> str:
    against = each.against
    if against is None:
        return f"{each.case}: not compared"
    first = "" if against.first is None else f", first {against.first}"
    return f"{each.case}: {against.differing} of {against.compared} values differ{first}"


def _place(boundary: Boundary) -> str:
    return f"step {boundary.step}, {boundary.name}"
