"""Token ids of a dump: what went in, and what came out, as far as it was dumped."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from swarepro import points
from swarepro.bundle.schema import SpanEntry, StepEntry
from swarepro.errors import ForeignError
from swarepro.foreign.pieces import Piece
from swarepro.foreign.timeline import Timeline, num_sessions

Ids = tuple[tuple[int, ...], ...]


def inputs_of(pieces: Sequence[Piece], timeline: Timeline) -> Ids:
    """Return the ids that went in, by session and in order; empty where they were not dumped.

    Raises:
        ForeignError: they are no integers, or the dumped positions are not those of the steps.
    """
    found: list[list[int]] = [[] for _ in range(num_sessions(timeline))]
    spans = {(step.index, span.session): span for step in timeline.steps for span in step.spans}
    for piece in pieces:
        record = piece.record
        if record.point == points.INPUT_IDS.name and record.stage == 0:
            found[record.session] += _values(piece)
        elif record.point == points.POSITIONS.name and piece.array is not None:
            span = spans[record.step, record.session]
            _check_positions(piece, span, timeline.numbers[record.step])
    return tuple(map(tuple, found)) if any(found) else ()


def outputs_of(
    inputs: Ids, pieces: Sequence[Piece], timeline: Timeline, *, prompts: Ids, tokens: Ids
) -> tuple[Ids, Ids]:
    """Return prompts and generated tokens by session.

    Args:
        inputs: from `inputs_of`.
        pieces: of integers, among them the dumped tokens.
        timeline: the steps.
        prompts: what is known without the dump; empty = take the ids that prefill steps took in.
        tokens: likewise; empty = take the point ``token`` where it was dumped.

    Raises:
        ForeignError: more sessions in one than in the other.
    """
    sessions = num_sessions(timeline)
    for what, given in (("prompts", prompts), ("tokens", tokens)):
        if len(given) > sessions:
            raise ForeignError(f"{what} of {len(given)} sessions, and the steps have {sessions}")
    if not prompts and inputs:
        rows = _prompt_rows(timeline)
        prompts = tuple(ids[: rows[session]] for session, ids in enumerate(inputs))
    if not tokens:
        tokens = _generated(pieces, timeline, sessions)
    return _filled(prompts, sessions), _filled(tokens, sessions)


def _filled(ids: Ids, sessions: int) -> Ids:
    return (*ids, *((),) * (sessions - len(ids)))


def _values(piece: Piece) -> list[int]:
    if piece.array is None:
        return []
    if piece.record.dtype[0] not in "IU":
        raise ForeignError(f"{piece.record.name}: {piece.record.dtype}, wanted integers")
    return [int(value) for value in np.ravel(piece.array)]


def _check_positions(piece: Piece, span: SpanEntry, number: int) -> None:
    record = piece.record
    values = _values(piece)
    if values != list(range(span.start, span.end)):
        raise ForeignError(
            f"positions of step {number}, session {record.session}, are {_shown(values)}, and the"
            f" step has {span.start} to {span.end - 1}",
            hint="a tensor of another step, or a wrong [[steps]] in the map",
        )


def _shown(values: list[int]) -> str:
    return f"{values[0]} to {values[-1]}" if values else "none"


def _phase(step: StepEntry, span: SpanEntry) -> str:
    return span.phase or step.phase


def _prompt_rows(timeline: Timeline) -> Counter[int]:
    """Return by session how many rows its prefill steps have."""
    rows: Counter[int] = Counter()
    for step in timeline.steps:
        for span in step.spans:
            if _phase(step, span) == "prefill":
                rows[span.session] += span.end - span.start
    return rows


def _generated(pieces: Sequence[Piece], timeline: Timeline, sessions: int) -> Ids:
    """Return what the last prefill step and the decode steps of each session generated."""
    last: dict[int, int] = {}
    decodes: set[tuple[int, int]] = set()
    for step in timeline.steps:
        for span in step.spans:
            if _phase(step, span) == "decode":
                decodes.add((step.index, span.session))
            else:
                last[span.session] = step.index
    found: list[list[int]] = [[] for _ in range(sessions)]
    for piece in pieces:
        record = piece.record
        here = record.step, record.session
        generates = here in decodes or last.get(record.session) == record.step
        if record.point == points.TOKEN.name and generates:
            found[record.session] += _values(piece)
    return tuple(map(tuple, found))
