"""What varies between repeats, in words."""

from collections import Counter
from collections.abc import Sequence

from swarepro.bundle.schema import StageOwnership
from swarepro.compare.determinism import repeats_for
from swarepro.compare.types import BoundaryClasses, Determinism
from swarepro.points import PointKind
from swarepro.report.model import Grid, Report, Tone, shortened
from swarepro.report.slots import violations_sentence
from swarepro.report.words import count, is_store, listed, literal, percent, ranges

_CLASSES_LISTED = 6
_RATES = (0.05, 0.01, 0.001, 0.0001)


def determinism_report(
    result: Determinism,
    *,
    setting: str,
    ownership: Sequence[StageOwnership] = (),
    commands: tuple[str, ...] = (),
) -> Report:
    """Say what varies between repeats.

    Args:
        result: of N repeats.
        setting: one sentence about what ran.
        ownership: of the modal repeat; its first violation is said: it tells the cause in one run.
        commands: what to run next.
    """
    varies = result.verdict == "NONDETERMINISTIC"
    points = varying(result)
    rows = [
        (
            str(point.step),
            str(point.stage),
            *([str(point.session)] if result.several_sessions else []),
            literal(point.name),
            str(point.kind),
            str(point.distinct),
            classes(point),
            ranges(point.deviating),
        )
        for point in points
    ]
    broken = violations_sentence(ownership)
    grids: list[Grid] = []
    if rows:
        title = f"{len(rows):,} of {count(len(result.points), 'boundary')} vary"
        headings = (
            ">step", ">stage", *([">session"] if result.several_sessions else []), "boundary",
            "kind", ">distinct", "classes", "deviating",
        )  # fmt: skip
        value = result.first_value_varying
        keep = points.index(value) if value in points else None
        grids.append(shortened(title, headings, rows, keep=keep))
    return Report(
        headline=headline(result),
        tone=Tone.BAD if varies else Tone.GOOD,
        grids=tuple(grids),
        lines=(*([] if broken is None else [broken]), *_lines(result), setting),
        commands=commands,
    )


def headline(result: Determinism) -> str:
    """Return the verdict with its N, the earliest bad store and the first value that it harms."""
    first = result.earliest_varying
    if result.verdict == "DETERMINISTIC":
        return (
            f"DETERMINISTIC in {result.repeats} of {result.repeats} repeats:"
            f" no boundary of {len(result.points):,} varies."
        )
    verdict = f"NONDETERMINISTIC over {result.repeats} repeats"
    if first is None:
        return f"{verdict}: the generated tokens vary, yet no captured boundary does."
    value = result.first_value_varying
    if first.kind is PointKind.VALUE:
        return f"{verdict}: the earliest bad value is {_place(first, result)}."
    noun = "bad store" if is_store(first.name) else "boundary that varies"
    harm = (
        f"the first value that it harms is {_place(value, result)}"
        if value is not None
        else "no captured value varies with it"
    )
    return f"{verdict}: the earliest {noun} is {_place(first, result)}; {harm}."


def varying(result: Determinism) -> list[BoundaryClasses]:
    """Return the boundaries with more than one digest, in execution order."""
    return [point for point in result.points if point.distinct > 1]


def classes(point: BoundaryClasses) -> str:
    """Return the sizes of the groups of equal digests: ``"3+2+1"``; many as ``"4+2+58x1"``."""
    if len(point.classes) <= _CLASSES_LISTED:
        return "+".join(map(str, point.classes))
    sizes = Counter(point.classes)
    return "+".join(str(size) if many == 1 else f"{many}x{size}" for size, many in sizes.items())


def bound_sentence(result: Determinism) -> str | None:
    """Say which rate of divergence N equal repeats leave open; None when something varies."""
    bound = result.rate_upper_bound
    if bound is None:
        return None
    smaller = next((rate for rate in _RATES if rate < bound), None)
    more = (
        f"; {repeats_for(smaller)} repeats would leave {percent(smaller)}"
        if smaller is not None
        else ""
    )
    return (
        f"{count(result.repeats, 'repeat')} leave open a rate of divergence"
        f" of up to {percent(bound)} (95 %){more}."
    )


def _place(point: BoundaryClasses, result: Determinism) -> str:
    return (
        f"step {point.step},{f' session {point.session},' if result.several_sessions else ''}"
        f" {literal(point.name)} ({point.distinct} distinct of {result.repeats}: {classes(point)})"
    )


def _lines(result: Determinism) -> list[str]:
    lines = []
    bound = bound_sentence(result)
    if bound is not None:
        lines.append(bound)
    steps = sorted({point.step for point in result.points})
    if result.outputs_vary:
        noun = "step" if len(result.outputs_vary) == 1 else "steps"
        lines.append(f"The output of {noun} {ranges(result.outputs_vary)} varies.")
    elif steps:
        lines.append("The output of every step is the same in every repeat.")
    if result.deviating:
        noun = "Repeat" if len(result.deviating) == 1 else "Repeats"
        verb = "deviates" if len(result.deviating) == 1 else "deviate"
        lines.append(
            f"{noun} {ranges(result.deviating)} {verb}"
            f" (counted from 0); repeat {result.modal_repeat} shows the modal digests."
        )
    first = result.earliest_varying
    if first is not None and first.kind is PointKind.STATE:
        lines.append("`swarepro run` with the same options prints who owns which slot.")
    if first is not None and result.first_value_varying is None:
        lines.append("A value that does not vary may still be wrong: compare it with a right run.")
    lines.extend(_tokens(result.tokens))
    return lines


def _tokens(tokens: tuple[tuple[int, ...], ...]) -> list[str]:
    groups: dict[tuple[int, ...], list[int]] = {}
    for repeat, row in enumerate(tokens):
        groups.setdefault(row, []).append(repeat)
    if not any(groups):
        return []
    if len(groups) == 1:
        return [f"Tokens, the same in every repeat: {listed(next(iter(groups)), most=12)}."]
    return [
        f"Tokens of {'repeat' if len(repeats) == 1 else 'repeats'} {ranges(repeats)}:"
        f" {listed(row, most=12)}."
        for row, repeats in groups.items()
    ]
