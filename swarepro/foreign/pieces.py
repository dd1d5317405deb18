"""The records of a bundle from the boundaries of a dump: whole steps cut into spans, in order."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from swarepro import points
from swarepro.bundle.digest import digest_bytes
from swarepro.bundle.schema import SpanEntry, TensorRecord
from swarepro.errors import ForeignError
from swarepro.foreign.gather import Gathered, gather
from swarepro.foreign.matching import Matched, Matching
from swarepro.foreign.rules import ROW, TOKENS
from swarepro.foreign.tensors import Array
from swarepro.foreign.timeline import Timeline

_SLOTS = (points.FULL_SLOTS, points.SWA_SLOTS)
_SLICES = (points.KV_SLICE_PRE_WRITE, points.KV_SLICE_POST_WRITE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One tensor of the bundle.

    Attributes:
        record: its digest is that of ``array``.
        array: contiguous, in the dtype's view; None where the dump has a digest only.
    """

    record: TensorRecord
    array: Array | None


def by_step(matching: Matching) -> dict[int, tuple[Matched, ...]]:
    """Return the boundaries of each of the engine's steps."""
    grouped: dict[int, list[Matched]] = {}
    for matched in matching.matched:
        grouped.setdefault(matched.place.step, []).append(matched)
    return {number: tuple(group) for number, group in grouped.items()}


def pieces_of(
    of_step: Iterable[Matched], num_ranks: int, timeline: Timeline, place: int
) -> Iterator[Piece]:
    """Yield what a step of the dump gives, in execution order; opens one boundary at a time.

    Args:
        of_step: boundaries of the step.
        num_ranks: that split a tensor.
        timeline: the steps of the dump.
        place: of the step, from 0.

    Raises:
        ForeignError: a boundary that does not fit its step, by name.
    """
    step = timeline.steps[place]
    order = {span.session: at for at, span in enumerate(step.spans)}
    own = {span.session: (span,) for span in step.spans}
    seen: Counter[str] = Counter()
    for matched in sorted(of_step, key=lambda item: _place(item, place, order)):
        gathered = gather(matched, num_ranks)
        spans = step.spans if matched.place.session < 0 else own.get(matched.place.session, ())
        for span, array, shape in _cut(matched, gathered, spans):
            yield _piece(matched, gathered, span, array, shape, place, seen)


def _place(matched: Matched, step: int, order: dict[int, int]) -> tuple[points.ExecKey, int]:
    layer = None if matched.place.layer < 0 else matched.place.layer
    key = points.exec_key(
        matched.rule.point, step=step, stage=matched.place.stage, layer=layer, occurrence=0
    )
    return key, order.get(matched.place.session, -1)


def _cut(
    matched: Matched, gathered: Gathered, spans: tuple[SpanEntry, ...]
) -> Iterator[tuple[SpanEntry, Array | None, tuple[int, ...]]]:
    if not spans:
        raise ForeignError(
            f"{matched.shown}: session {matched.place.session} has no span in the step"
        )
    row = matched.rule.dims[0] if matched.rule.dims else ""
    total = sum(span.end - span.start for span in spans)
    wanted = {TOKENS: total, ROW: len(spans)}.get(row)
    if wanted is not None and gathered.shape[0] != wanted:
        raise ForeignError(
            f"{matched.shown}: {gathered.shape[0]:,} rows, and its spans have {wanted:,}",
            hint="rows = 'last' takes the last row of each span of a tensor with all rows",
        )
    if len(spans) > 1 and (wanted is None or gathered.array is None):
        raise ForeignError(
            f"{matched.shown}: it is of a batch of {len(spans)} sessions and cannot be cut",
            hint="write one tensor for each session, and say which: {session} in the name",
        )
    at = 0
    for span in spans:
        rows = span.end - span.start if row == TOKENS else 1
        array, shape = gathered.array, gathered.shape
        if array is not None and wanted is not None:
            last = matched.rule.spec.rows == "last"
            array = array[at + rows - 1 : at + rows] if last else array[at : at + rows]
            shape = array.shape
        at += rows
        yield span, array, shape


def _piece(
    matched: Matched,
    gathered: Gathered,
    span: SpanEntry,
    array: Array | None,
    shape: tuple[int, ...],
    step: int,
    seen: Counter[str],
) -> Piece:
    point, name = matched.rule.point, matched.name
    algorithm = "xxh3_128" if gathered.digest is None else gathered.digest.algorithm
    if array is not None:
        array = np.ascontiguousarray(array).reshape(shape)
        digest = digest_bytes(array.reshape(-1).view(np.uint8).data)
    elif gathered.digest is not None:
        digest = gathered.digest.value
    else:
        raise RuntimeError("a boundary with neither a tensor nor a digest")
    record = TensorRecord(
        index=0,
        step=step,
        stage=matched.place.stage,
        name=name,
        point=point.name,
        layer=None if matched.place.layer < 0 else matched.place.layer,
        occurrence=seen[name],
        kind=point.kind,
        dims=point.dims,
        dtype=gathered.dtype,
        shape=shape,
        digest=digest,
        session=span.session,
        row_start=_row_start(matched, span, shape),
        file=None,
        algorithm=algorithm,
    )
    seen[name] += 1
    return Piece(record=record, array=array)


def _row_start(matched: Matched, span: SpanEntry, shape: tuple[int, ...]) -> int | None:
    """Return the position of row 0: a slice ends where its queries do."""
    point = matched.rule.point
    if point.dims[:1] == ("T",):
        return span.start
    if point.dims[:1] == ("1",):
        return span.end - 1
    if point in _SLOTS:
        return 0
    return max(0, span.end - shape[0]) if point in _SLICES else None
