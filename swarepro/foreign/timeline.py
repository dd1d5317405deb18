"""What a dumped run computed when: from the map, from an index, or from the rows of its tensors."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from swarepro import points
from swarepro.bundle.schema import ActionEntry, Phase, SpanEntry, StepEntry
from swarepro.errors import ForeignError
from swarepro.foreign.gather import gather, num_tokens
from swarepro.foreign.index import Index
from swarepro.foreign.maps import StepRow
from swarepro.foreign.matching import Matched, Matching

MOST_SESSIONS = 10_000
_MAX_STEPS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The steps of a dumped run.

    Attributes:
        steps: in execution order, as a manifest has them.
        numbers: the engine's number of each of them.
        final_actions: after the last one.
    """

    steps: tuple[StepEntry, ...]
    numbers: tuple[int, ...]
    final_actions: tuple[ActionEntry, ...] = ()


def make_timeline(
    matching: Matching, rows: Sequence[StepRow] | None, index: Index | None
) -> Timeline:
    """Return the steps, and check that every boundary has the rows of its step.

    Args:
        matching: of the dump.
        rows: what the map says, or None.
        index: what an export says, or None.

    Raises:
        ForeignError: steps that cannot be derived, or that a tensor contradicts.
    """
    by_step = _counted(matching)
    if index is not None:
        timeline = Timeline(
            steps=index.steps,
            numbers=tuple(step.index for step in index.steps),
            final_actions=index.final_actions,
        )
    elif rows is not None:
        timeline = _stated(rows)
    else:
        timeline = _derived(matching, by_step)
    if not timeline.steps:
        raise ForeignError("no step was found", hint="write them down: [[steps]] in the map")
    num_sessions(timeline)
    _check_rows(timeline, by_step)
    return timeline


def num_sessions(timeline: Timeline) -> int:
    """Return how many sessions the steps have, by the largest number; ForeignError: too many."""
    sessions = [span.session for step in timeline.steps for span in step.spans]
    actions = [action for step in timeline.steps for action in step.actions]
    sessions += [action.session for action in (*actions, *timeline.final_actions)]
    last = max(sessions, default=0)
    if last >= MOST_SESSIONS:
        raise ForeignError(
            f"session {last}: {MOST_SESSIONS:,} sessions are the most",
            hint="import fewer sessions at a time; they are numbered from 0",
        )
    return last + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """A boundary and how many rows of tokens it has."""

    matched: Matched
    num_rows: int


def _counted(matching: Matching) -> dict[int, list[_Counted]]:
    by_step: dict[int, list[_Counted]] = {}
    for matched in matching.matched:
        of_step = by_step.setdefault(matched.place.step, [])
        number = num_tokens(matched, matching.num_ranks)
        if number is not None:
            of_step.append(_Counted(matched=matched, num_rows=number))
    return by_step


def _stated(rows: Sequence[StepRow]) -> Timeline:
    if len(rows) > _MAX_STEPS:
        raise ForeignError(f"{len(rows):,} steps, and {_MAX_STEPS:,} is the most")
    numbers = [place if row.step is None else row.step for place, row in enumerate(rows)]
    if len(set(numbers)) != len(numbers):
        raise ForeignError("[[steps]] names a step of the engine twice")
    begun: set[int] = set()
    steps = []
    for place, row in enumerate(rows):
        if row.reset:
            begun.clear()
        spans = []
        for span in row.spans:
            if span.start >= span.end:
                raise ForeignError(
                    f"[[steps]] {place}: {span.start} to {span.end} are no positions"
                )
            phase = span.phase or _phase(span.end - span.start, span.session in begun)
            spans.append((span.session, span.start, span.end, phase))
            begun.add(span.session)
        if len({span[0] for span in spans}) != len(spans) or not spans:
            raise ForeignError(f"[[steps]] {place}: wanted one span of each of its sessions")
        steps.append(_entry(place, spans, reset=row.reset))
    return Timeline(steps=tuple(steps), numbers=tuple(numbers))


def _phase(num_rows: int, has_begun: bool) -> Phase:
    return "decode" if has_begun and num_rows == 1 else "prefill"


def _entry(place: int, spans: list[tuple[int, int, int, Phase]], *, reset: bool) -> StepEntry:
    phases = {phase for *_, phase in spans}
    mixed = len(phases) > 1
    return StepEntry(
        index=place,
        phase="mixed" if mixed else spans[0][3],
        spans=tuple(
            SpanEntry(session=session, start=start, end=end, phase=phase if mixed else None)
            for session, start, end, phase in spans
        ),
        reset=reset,
    )


def _derived(matching: Matching, by_step: dict[int, list[_Counted]]) -> Timeline:
    """One session, or those that the names tell apart; each goes on where it ended."""
    steps: list[StepEntry] = []
    frontier: dict[int, int] = {}
    for place, number in enumerate(sorted(by_step)):
        by_session: dict[int, list[_Counted]] = {}
        for counted in by_step[number]:
            by_session.setdefault(counted.matched.place.session, []).append(counted)
        sessions = sorted(by_session)
        if not sessions or (sessions[0] < 0 and len(sessions) > 1):
            what = "some tensors name a session and some none" if sessions else "no tensor has rows"
            raise ForeignError(
                f"step {number}: {what}, so its spans cannot be told",
                hint="write them down: [[steps]] in the map",
            )
        spans = []
        for session in sessions:
            own = by_session[session]
            num_rows = _rows_of(own)
            named = max(session, 0)
            start = _first_position(own, num_rows, matching.num_ranks, number)
            if start is None:
                start = frontier.get(named, 0)
            spans.append((named, start, start + num_rows, _phase(num_rows, named in frontier)))
            frontier[named] = start + num_rows
        if any(start == end for _, start, end, _ in spans):
            raise ForeignError(f"step {number}: its tensors have no rows")
        steps.append(_entry(place, spans, reset=False))
    return Timeline(steps=tuple(steps), numbers=tuple(sorted(by_step)))


def _rows_of(own: list[_Counted]) -> int:
    for counted in own:
        if counted.matched.rule.point in (points.POSITIONS, points.INPUT_IDS):
            return counted.num_rows
    return Counter(counted.num_rows for counted in own).most_common(1)[0][0]


def _first_position(own: list[_Counted], num_rows: int, num_ranks: int, number: int) -> int | None:
    """Return the first of the dumped positions; None where none were."""
    for counted in own:
        if counted.matched.rule.point is points.POSITIONS:
            values = read_integers(counted.matched, num_ranks)
            if values is None:
                return None
            if values != list(range(values[0], values[0] + num_rows)) or values[0] < 0:
                raise ForeignError(
                    f"step {number}: its positions are not consecutive: a batch of several"
                    " sessions",
                    hint="write its spans down: [[steps]] in the map",
                )
            return values[0]
    return None


def read_integers(matched: Matched, num_ranks: int) -> list[int] | None:
    """Return the values of a boundary of integers; None where there is a digest only.

    Raises:
        ForeignError: they are no integers.
    """
    gathered = gather(matched, num_ranks)
    if gathered.array is None:
        return None
    if gathered.dtype[0] not in "IU":
        raise ForeignError(f"{matched.shown}: {gathered.dtype} where integers were wanted")
    return [int(value) for value in np.ravel(gathered.array)]


def _check_rows(timeline: Timeline, by_step: dict[int, list[_Counted]]) -> None:
    total = {
        number: sum(span.end - span.start for span in step.spans)
        for number, step in zip(timeline.numbers, timeline.steps, strict=True)
    }
    rows = {
        (number, span.session): span.end - span.start
        for number, step in zip(timeline.numbers, timeline.steps, strict=True)
        for span in step.spans
    }
    for number, counted in _all(timeline, by_step):
        session = counted.matched.place.session
        wanted = total[number] if session < 0 else rows.get((number, session))
        if wanted is None:
            raise ForeignError(
                f"{counted.matched.shown}: session {session} has no span in the step"
            )
        if counted.num_rows != wanted:
            raise ForeignError(
                f"{counted.matched.shown} has {counted.num_rows:,} rows, and the step has"
                f" {wanted:,}{_other_step(counted.num_rows, total)}",
                hint="a tensor of another step, or a wrong layout or [[steps]] in the map",
            )


def _all(timeline: Timeline, by_step: dict[int, list[_Counted]]) -> Iterator[tuple[int, _Counted]]:
    for number in timeline.numbers:
        for counted in by_step.get(number, []):
            yield number, counted


def _other_step(num_rows: int, total: dict[int, int]) -> str:
    others = [str(number) for number, rows in total.items() if rows == num_rows]
    return f"; step {others[0]} has {num_rows:,}" if others else ""
