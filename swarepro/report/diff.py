"""The comparison of two runs in words: where they part, and whether a store or a value is bad."""

from swarepro.compare.types import BoundaryDiff, Divergence, OneSided, TensorDiff, Verdict
from swarepro.points import PointKind
from swarepro.report.bound import bound_of
from swarepro.report.model import Grid, Report, Tone, shortened
from swarepro.report.settings import settings_said
from swarepro.report.tolerance import describe_tolerance
from swarepro.report.words import MISSING, capital, count, figure, is_store, listed, literal, ranges

_METADATA_DIFFERS = {
    "input_ids": "the runs were given different inputs",
    "positions": "the runs were given different inputs",
    "prefix_len": "the runs see different prefixes",
    "full_slots": "the runs use different KV slots",
    "swa_slots": "the runs use different KV slots",
    "route": "the runs took different attention routes",
}
_SLOTS = ("full_slots", "swa_slots")
_INPUTS = {
    "source": "equal: a source",
    "inherited": "differ: inherited",
    "unknown": "no captured input differs",
}
_TONES = {
    Verdict.IDENTICAL: Tone.GOOD,
    Verdict.WITHIN_TOLERANCE: Tone.GOOD,
    Verdict.DIVERGED: Tone.BAD,
    Verdict.INCOMPARABLE: Tone.UNSURE,
}


def diff_report(divergence: Divergence, *, on_disk: bool = True) -> Report:
    """Say where two runs part, in one sentence and the tables that carry it.

    Args:
        divergence: of the two.
        on_disk: both were read from there, and nothing is known of what happened to them since.
    """
    grids = []
    if divergence.first is not None:
        grids.append(_milestones(divergence))
        grids.append(_diverging(divergence))
    refused = [b for b in divergence.boundaries if b.verdict is Verdict.INCOMPARABLE]
    if refused:
        grids.append(_incomparable(divergence, refused))
    return Report(
        preface=settings_said(
            divergence.differences, equal=divergence.verdict is Verdict.IDENTICAL
        ),
        headline=headline(divergence),
        tone=_TONES[divergence.verdict],
        grids=tuple(grids),
        lines=(*_lines(divergence), *(_unverified(divergence) if on_disk else ())),
    )


def _unverified(divergence: Divergence) -> tuple[str, ...]:
    if divergence.verdict is not Verdict.IDENTICAL or divergence.verified:
        return ()
    return ("Stored bytes were not checked against their digests; --verify does that.",)


def headline(divergence: Divergence) -> str:
    """Return the answer in one or two sentences."""
    if divergence.verdict is Verdict.IDENTICAL:
        return (
            f"IDENTICAL: {_all(divergence.compared)} the same bytes"
            f"{_where(divergence) or ' on both sides'}{_as_far(divergence)}"
            f"{_except_one_sided(divergence)}."
        )
    if divergence.verdict is Verdict.WITHIN_TOLERANCE:
        apart = sum(b.verdict is Verdict.WITHIN_TOLERANCE for b in divergence.boundaries)
        return (
            f"WITHIN TOLERANCE: {_all(divergence.compared)} equal values"
            f" {describe_tolerance(divergence.tolerance)}{_where(divergence)}{_as_far(divergence)};"
            f" {count(apart, 'boundary')} not bitwise{_except_one_sided(divergence)}."
        )
    if divergence.verdict is Verdict.INCOMPARABLE:
        reasons = {b.reason for b in divergence.boundaries if b.reason}
        why = f": {listed(sorted(reasons), most=3)}" if reasons else ""
        return f"INCOMPARABLE: {count(divergence.compared, 'boundary')} could be judged{why}."
    return f"DIVERGED. {_where_they_part(divergence)}"


def _where_they_part(divergence: Divergence) -> str:
    first = divergence.first
    if first is None:
        return "The generated tokens differ, yet no boundary that both sides captured does."
    is_exact = bound_of(divergence, first) == "exact"
    place = f"{_bounded(divergence, first)}{_measured(first)}"
    # Whether the value or a store before it is bad is known only where nothing may lie before.
    if first.kind is PointKind.VALUE:
        return f"{'A bad value' if is_exact else 'A value differs'}: the runs part {place}."
    if first.reread_at is not None:
        return (
            "Rows of a pool changed after they were written: the runs part"
            f" {place}, where {literal(first.reason or MISSING)}, at its step {first.reread_at}."
            f" {_harm(divergence)}"
        )
    if first.kind is PointKind.STATE:
        if not is_store(first.name):
            what = "The pool differs before a store"
        else:
            what = "A bad store" if is_exact else "A store differs"
        return f"{what}: the runs part {place}. {_harm(divergence)}"
    name = first.name.partition("#")[0]
    cause = capital(_METADATA_DIFFERS.get(name, "the runs differ in metadata"))
    state = divergence.first_state
    noun = "bad store" if name in _SLOTS else "store that differs"
    if state is not None and not is_store(state.name):
        noun = "difference in a pool, before a store,"
    stored = f"The first {noun} is {_bounded(divergence, state)}. " if state else ""
    return f"{cause}: they part {place}. {stored}{_harm(divergence)}"


def _harm(divergence: Divergence) -> str:
    value = divergence.first_value
    if value is None:
        return f"It harms no captured value{_as_far(divergence)}."
    return f"It first harms a value {_bounded(divergence, value)}{_measured(value)}."


def _bounded(divergence: Divergence, milestone: BoundaryDiff) -> str:
    here = "at" if bound_of(divergence, milestone) == "exact" else "at or before"
    return f"{here} {place_of(divergence, milestone)}"


def place_of(divergence: Divergence, boundary: BoundaryDiff) -> str:
    """Return ``"step 1, L0_attention_output (layer 0, value)"``, with its session among several."""
    where = f"layer {boundary.layer}, " if boundary.layer is not None else ""
    session = f" session {boundary.session}," if divergence.several_sessions else ""
    return f"step {boundary.step},{session} {literal(boundary.name)} ({where}{boundary.kind})"


def _measured(boundary: BoundaryDiff) -> str:
    numbers = boundary.numbers
    if numbers is None:
        return ""
    words = [f"{_share(len(numbers.rows), numbers.num_rows, 'row')}"]
    if numbers.num_heads:
        words.append(_share(len(numbers.heads), numbers.num_heads, "head"))
    if numbers.relative_l2 and boundary.kind is not PointKind.METADATA:
        words.append(f"relative L2 {figure(numbers.relative_l2)}")
    if numbers.nonfinite_target or numbers.nonfinite_baseline:
        words.append(
            f"non-finite {numbers.nonfinite_baseline:,} against {numbers.nonfinite_target:,}"
        )
    return f": {', '.join(words)}"


def _share(part: int, whole: int, noun: str) -> str:
    return f"{part:,} of {count(whole, noun)}"


def _all(compared: int) -> str:
    return "the one boundary has" if compared == 1 else f"all {compared:,} boundaries have"


def _where(divergence: Divergence) -> str:
    """Confine the answer where boundaries have rows that one side lacks."""
    sides = (*divergence.only_baseline, *divergence.only_target)
    if any(one.positions is not None for one in sides):
        return " in the rows that both sides have"
    return ""


def _as_far(divergence: Divergence) -> str:
    """Confine the answer where one run ends before the other."""
    step = divergence.last_step
    return "" if step is None else f" up to step {step}, the last that both runs have"


def _except_one_sided(divergence: Divergence) -> str:
    """Say how many boundaries, and which rows, only one side has."""
    sides = (("baseline", divergence.only_baseline), ("target", divergence.only_target))
    whole = sum(one.positions is None for _, points in sides for one in points)
    words = [f"; {count(whole, 'boundary')} on one side only"] if whole else []
    for side, points in sides:
        by_session: dict[int, list[OneSided]] = {}
        for one in points:
            if one.positions is not None:
                by_session.setdefault(one.session, []).append(one)
        for session, parts in sorted(by_session.items()):
            rows = sorted({row for one in parts for row in range(*(one.positions or (0, 0)))})
            of = count(len({one.name for one in parts}), "boundary")
            whose = f" of session {session}" if divergence.several_sessions else ""
            words.append(f"; positions {ranges(rows, most=3)}{whose} of {of} only in the {side}")
    return "".join(words)


def _milestones(divergence: Divergence) -> Grid:
    """Return the first boundary of all, the first state and the first value, side by side."""
    columns: list[tuple[str, BoundaryDiff]] = []
    for title, boundary in (
        ("first", divergence.first),
        ("first state", divergence.first_state),
        ("first value", divergence.first_value),
    ):
        if boundary is None:
            continue
        same = [index for index, (_, other) in enumerate(columns) if other == boundary]
        if same:
            columns[same[0]] = (f"{columns[same[0]][0]} = {title}", boundary)
        else:
            columns.append((title, boundary))
    facts = [_facts(divergence, boundary) for _, boundary in columns]
    keys = [key for key in facts[0] if any(fact[key] != MISSING for fact in facts)]
    return Grid(
        title="Where the runs part (baseline against target)",
        columns=("", *(title for title, _ in columns)),
        rows=tuple((key, *(fact[key] for fact in facts)) for key in keys),
    )


def _facts(divergence: Divergence, boundary: BoundaryDiff) -> dict[str, str]:
    exact = bound_of(divergence, boundary) == "exact"
    return {
        "step": str(boundary.step),
        "stage": str(boundary.stage),
        "session": str(boundary.session) if divergence.several_sessions else MISSING,
        "boundary": literal(boundary.name),
        "layer": MISSING if boundary.layer is None else str(boundary.layer),
        "kind": str(boundary.kind),
        "bound": "exactly here" if exact else "here or before",
        "its inputs": _INPUTS.get(boundary.origin or "", MISSING),
        **_number_facts(boundary.numbers),
    }


def _number_facts(numbers: TensorDiff | None) -> dict[str, str]:
    keys = (
        "rows",
        "positions",
        "heads",
        "elements",
        "first mismatch",
        "max ulp",
        "max abs",
        "relative L2",
        "cosine",
        "non-finite",
    )
    if numbers is None:
        return dict.fromkeys(keys, MISSING)
    values = (
        f"{len(numbers.rows):,} of {numbers.num_rows:,}: {ranges(numbers.rows, most=3)}",
        ranges(numbers.positions, most=3),
        f"{len(numbers.heads)} of {numbers.num_heads}: {ranges(numbers.heads, most=3)}"
        if numbers.num_heads
        else MISSING,
        f"{numbers.num_mismatched:,} of {numbers.num_elements:,}",
        f"[{', '.join(map(str, numbers.first_mismatch))}]" if numbers.first_mismatch else MISSING,
        figure(numbers.max_ulp),
        figure(numbers.max_abs),
        figure(numbers.relative_l2),
        MISSING if numbers.cosine is None else f"{numbers.cosine:.6f}",
        f"{numbers.nonfinite_baseline:,} / {numbers.nonfinite_target:,}",
    )
    return dict(zip(keys, values, strict=True))


def _diverging(divergence: Divergence) -> Grid:
    diverged = [b for b in divergence.boundaries if b.verdict is Verdict.DIVERGED]
    sources = sum(b.origin == "source" for b in diverged)
    unknown = sum(b.origin == "unknown" for b in diverged)
    title = (
        f"{count(len(diverged), 'boundary')} of {divergence.compared:,} diverge,"
        f" {sources:,} of them at a source"
    )
    if unknown:
        title += f"; at {unknown:,} no captured input differs"
    rows = [
        (
            str(b.step),
            *_session(divergence, b),
            literal(b.name),
            str(b.kind),
            b.origin or MISSING,
            f"{len(b.numbers.rows):,} of {b.numbers.num_rows:,}" if b.numbers else MISSING,
            figure(b.numbers.max_abs) if b.numbers else MISSING,
            figure(b.numbers.relative_l2) if b.numbers else MISSING,
        )
        for b in diverged
    ]
    return shortened(
        title,
        (*_first_columns(divergence), "kind", "origin", ">rows", ">max abs", ">rel. L2"),
        rows,
    )


def _first_columns(divergence: Divergence) -> tuple[str, ...]:
    return (">step", *([">session"] if divergence.several_sessions else []), "boundary")


def _session(divergence: Divergence, boundary: BoundaryDiff) -> tuple[str, ...]:
    return (str(boundary.session),) if divergence.several_sessions else ()


def _incomparable(divergence: Divergence, refused: list[BoundaryDiff]) -> Grid:
    return shortened(
        f"{count(len(refused), 'boundary')} could not be compared",
        (*_first_columns(divergence), "reason"),
        [
            (
                str(b.step),
                *_session(divergence, b),
                literal(b.name),
                literal(b.reason or MISSING),
            )
            for b in refused
        ],
    )


def _lines(divergence: Divergence) -> list[str]:
    lines = []
    if divergence.first is not None:
        last = divergence.last_identical
        lines.append(
            f"Identical until then: the last one is {place_of(divergence, last)}."
            if last is not None
            else "No captured boundary before it is identical."
        )
    for side, points in (
        ("baseline", divergence.only_baseline),
        ("target", divergence.only_target),
    ):
        if points:
            lines.append(_one_sided(divergence, side, points))
    if divergence.patterns:
        where = divergence.first_value or divergence.first
        at = "" if where is None else f" at {literal(where.name)}"
        lines.append(f"The rows that are off{at}: {'; '.join(divergence.patterns)}.")
    if divergence.skipped:
        names = listed([name.format(layer="*") for name in divergence.skipped], most=8)
        lines.append(f"Not compared, because it differs by intent or cannot be matched: {names}.")
    if divergence.first is not None and bound_of(divergence, divergence.first) != "exact":
        lines.append(f"{_why_before(divergence.first)}: read it as here or before.")
    if divergence.unsteady:
        lines.append(
            "The baseline itself reads rows otherwise than it wrote them, first at"
            f" {literal(divergence.unsteady[0])}: it is no measure."
        )
    if divergence.tokens_differ:
        lines.append("The generated tokens differ.")
    lines.append(
        f"Compared {count(divergence.compared, 'boundary')} by {divergence.align},"
        f" {describe_tolerance(divergence.tolerance)}:"
        f" {count(divergence.tensors_opened, 'tensor')} opened for numbers,"
        " the rest judged by digest."
    )
    if divergence.rereads:
        slices = count(divergence.rereads, "slice")
        lines.append(
            f"Rows of a pool are compared at their first write; {slices} of both sides were read to"
            " see that they stay."
        )
    return lines


def _why_before(first: BoundaryDiff) -> str:
    if first.origin == "unknown":
        return "Not all that the first one is computed from was captured and judged on both sides"
    return "Points before the first one are on one side only, or could not be judged"


def _one_sided(divergence: Divergence, side: str, points: tuple[OneSided, ...]) -> str:
    names = [
        f"step {point.step}{f' session {point.session}' if divergence.several_sessions else ''}"
        f" {point.name}{_rows(point)}"
        for point in points
    ]
    return f"Only in the {side}: {count(len(points), 'boundary')} ({listed(names, most=4)})."


def _rows(point: OneSided) -> str:
    if point.positions is None:
        return ""
    start, end = point.positions
    return f" at {start}" if end == start + 1 else f" at {start}-{end - 1}"
