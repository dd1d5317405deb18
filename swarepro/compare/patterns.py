"""What the rows and heads that are off have in common, in sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from swarepro import points
from swarepro.bundle.digest import digest_rows
from swarepro.bundle.dtypes import DTYPES, tensor_bytes
from swarepro.bundle.read import WINDOW_BYTES, Bundle
from swarepro.compare.floats import Array, is_nonfinite
from swarepro.compare.keys import Heads, KeySolver, Seen
from swarepro.compare.rows import Segment, first_appearances
from swarepro.compare.settings import images_of
from swarepro.compare.stacked import Stacked, stacked
from swarepro.compare.steps import phase_of

_MOST_BYTES = 1 << 26
_TRIED = 24
"""Queries whose keys are solved for, at most."""
_FEWEST = 4
_MOST_VALUES = 1 << 26
"""Of attention outputs: what all these queries could have seen; else fewer are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Off:
    """Rows of one boundary of one session that are off.

    Attributes:
        point: the declared point.
        layer: global layer id, or None.
        session: whose rows.
        positions: ascending.
        heads: with a value that is off.
        num_heads: of the boundary; 0 without heads.
    """

    point: str
    layer: int | None
    session: int
    positions: Sequence[int]
    heads: Sequence[int]
    num_heads: int


def patterns(baseline: Bundle, target: Bundle, off: Off) -> tuple[str, ...]:
    """Say what is known of the rows that are off; nothing where nothing is.

    Nothing is said of a boundary of more than 64 MiB, or one that was not stored.
    """
    if not off.positions:
        return ()
    rows = _segments(target, off.point, off.layer, off.session)
    if not rows or not _segments(baseline, off.point, off.layer, off.session):
        return ()
    window = window_of(baseline, off.layer, off.session)
    found = [*_edges(target, off, rows, window)]
    found += _of_heads(off.heads, off.num_heads)
    found += _contents(baseline, target, off, rows)
    if off.point == points.ATTENTION_OUTPUT.name:
        found += _keys(baseline, target, off)
    return tuple(found)


def window_of(bundle: Bundle, layer: int | None, session: int) -> int | None:
    """Return the keys that a query of a layer sees, as far as its KV slices show; None = all."""
    starts = {
        (span.session, step.index): span.start
        for step in bundle.manifest.steps
        for span in step.spans
    }
    for record in bundle.records:
        shows = record.point == points.KV_SLICE_POST_WRITE.name and record.layer == layer
        if shows and record.session == session and record.row_start:
            return starts[session, record.step] - record.row_start + 1
    return None


def _edges(target: Bundle, off: Off, rows: Sequence[Segment], window: int | None) -> list[str]:
    positions, session = off.positions, off.session
    first, last = positions[0], positions[-1]
    end = rows[-1].end - 1
    whole = list(positions) == list(range(first, last + 1))
    found = []
    if whole and first > rows[0].position and last == end and len(positions) > 1:
        found.append(f"all rows from position {first} on are off, and none before it")
    chunks = [
        span.start
        for step in target.manifest.steps
        for span in step.spans
        if span.session == session and phase_of(step, span) == "prefill" and span.start
    ]
    if window is not None and first == window:
        found.append(
            f"position {first} is the first that does not see all before it (window {window})"
        )
    for image, end_of_image in images_of(target.manifest, session):
        # What its last token sees is the same either way.
        if whole and (first, last) == (image, end_of_image - 2):
            found.append(
                f"these are the tokens of the image at positions {image} to {end_of_image - 1} but"
                " its last, as where none sees those behind it"
            )
    if first in chunks:
        found.append(f"a chunk begins at position {first}")
    size = target.manifest.case.get("page_size", 1)
    if isinstance(size, int) and size > 1:
        if first % size == 0 and first:
            found.append(f"a page of {size} begins at position {first}")
        if first // size == last // size and len(positions) > 1:
            found.append(f"all lie in page {first // size} of the session")
    return found


def _of_heads(heads: Sequence[int], num_heads: int) -> list[str]:
    if num_heads < 2 or not heads or len(heads) == num_heads:
        return []
    shown = ", ".join(map(str, heads[:8])) + (", ..." if len(heads) > 8 else "")
    return [f"{len(heads)} of {num_heads} heads are off: {shown}"]


def _contents(baseline: Bundle, target: Bundle, off: Off, rows: Sequence[Segment]) -> list[str]:
    """Say whose rows the rows that are off really are."""
    session, wanted = off.session, frozenset(off.positions)
    bad: list[int] = []
    zero: list[int] = []
    held: dict[int, int] = {}
    for segment in rows:
        dtype = DTYPES[segment.record.dtype]
        for position, row in _each(target, segment):
            if position not in wanted:
                continue
            if is_nonfinite(row, dtype).all():
                bad.append(position)
            elif not row.view(np.uint8).any():
                zero.append(position)
            else:
                held[position] = _digest(row)
    found = []
    if bad:
        found.append(f"{_rows_of(bad)} not finite in any value, as if no key had been seen")
    if zero:
        found.append(f"{_rows_of(zero)} zero")
    is_of = _owners(baseline, off, frozenset(held.values()))
    others = {
        position: is_of[digest]
        for position, digest in held.items()
        if digest in is_of and is_of[digest] != (session, position)
    }
    swapped = [
        (p, q)
        for p, (s, q) in others.items()
        if p < q and others.get(q) == (session, p) and s == session
    ]
    found += [f"rows {p} and {q} are swapped" for p, q in swapped[:3]]
    rest = [p for p in others if not any(p in pair for pair in swapped)]
    if rest:
        whose, q = others[rest[0]]
        of = "" if whose == session else f" of session {whose}"
        more = f", and {len(rest) - 1} more likewise" if len(rest) > 1 else ""
        found.append(f"row {rest[0]} holds what position {q}{of} has in the baseline{more}")
    return found


def _owners(baseline: Bundle, off: Off, digests: frozenset[int]) -> dict[int, tuple[int, int]]:
    """Return by digest the session and position of a row of the baseline; its own session first."""
    found: dict[int, tuple[int, int]] = {}
    sessions = {record.session for record in baseline.records}
    for session in sorted(sessions, key=lambda other: (other != off.session, other)):
        for segment in _segments(baseline, off.point, off.layer, session):
            for position, row in _each(baseline, segment):
                digest = _digest(row)
                if digest in digests:
                    found.setdefault(digest, (session, position))
    return found


def _each(bundle: Bundle, segment: Segment) -> Iterator[tuple[int, Array]]:
    """Yield each row of a segment, flat, with its position; they alias the file."""
    row_bytes = tensor_bytes(segment.record.dtype, segment.record.shape[1:])
    height = max(1, WINDOW_BYTES // max(1, row_bytes))
    for start in range(0, segment.num_rows, height):
        stop = min(start + height, segment.num_rows)
        rows = bundle.rows(segment.record, segment.row + start, segment.row + stop)
        for place, row in enumerate(rows.reshape(stop - start, -1)):
            yield segment.position + start + place, row


def _digest(row: Array) -> int:
    (digest,) = digest_rows(row.view(np.uint8).data, row.nbytes)
    return digest


def _rows_of(positions: Sequence[int]) -> str:
    if len(positions) == 1:
        return f"row {positions[0]} is"
    return f"{len(positions)} rows ({positions[0]} to {positions[-1]}) are"


def _keys(baseline: Bundle, target: Bundle, off: Off) -> list[str]:
    """Say which keys the queries saw, where the baseline's inputs are all there from position 0."""
    layer, session, positions = off.layer, off.session, off.positions
    rotated = _rows(baseline, points.ROTARY_APPLIED.name, layer, session)
    held = _rows(baseline, points.KV_SLICE_POST_WRITE.name, layer, session)
    out = _rows(baseline, points.ATTENTION_OUTPUT.name, layer, session)
    rows = _rows(target, points.ATTENTION_OUTPUT.name, layer, session)
    if rotated is None or held is None or out is None or rows is None:
        return []
    common = np.arange(positions[-1] + 1)
    if not all(
        np.array_equal(side.positions[: len(common)], common) for side in (rotated, held, out)
    ):
        return []
    if not _fit_together(rotated, held, out, rows):
        return []
    values = held.values(common)
    num_heads = out.rows.shape[1]
    solver = KeySolver(
        Heads(
            q=rotated.values(common)[:, :num_heads],
            k=values[:, 0],
            v=values[:, 1],
            out=out.values(common),
        )
    )
    if not solver.fits:
        return []
    could_see = len(common) * out.rows[0].size
    number = max(_FEWEST, min(_TRIED, _MOST_VALUES // could_see))
    tried = positions[:: -(-len(positions) // number)]
    pairs = []
    for p in tried:
        at = np.array([p])
        wanted = solver.seen(p, out.values(at)[0])
        seen = solver.seen(p, rows.values(at)[0])
        if wanted is not None and seen is not None and wanted != seen:
            pairs.append((p, wanted, seen))
    return _said(tried, pairs)


def _fit_together(rotated: Stacked, held: Stacked, out: Stacked, rows: Stacked) -> bool:
    """Return whether shapes are those of one attention call; a bundle says what it likes."""
    inputs, slices, outputs = (side.rows.shape[1:] for side in (rotated, held, out))
    if (len(inputs), len(slices), len(outputs)) != (2, 3, 2) or rows.rows.shape[1:] != outputs:
        return False
    num_heads, head_dim = outputs
    return (
        slices[0] == 2
        and slices[1] > 0
        and num_heads % slices[1] == 0
        and slices[2] == head_dim
        and inputs == (num_heads + slices[1], head_dim)
    )


def _said(tried: Sequence[int], pairs: Sequence[tuple[int, Seen, Seen]]) -> list[str]:
    """Say what the queries saw where most of them saw other keys: a rule, not an accident."""
    if len(pairs) < max(1, len(tried) / 2):
        return []
    p, wanted, seen = pairs[0]
    said = (
        f"query {p} saw keys {seen.first} to {seen.last} instead of {wanted.first} to {wanted.last}"
    )
    more = {old.first - new.first for _, old, new in pairs}
    if len(more) == 1 and all(old.last == new.last for _, old, new in pairs):
        count = more.pop()
        said += f", {abs(count)} too {'many' if count > 0 else 'few'}"
    return [f"{said} ({len(pairs)} of {len(tried)} queries that were tried saw other keys)"]


def _segments(bundle: Bundle, point: str, layer: int | None, session: int) -> list[Segment]:
    """Return the rows of a boundary by position; none where they have none, or are not stored."""
    records = [
        record
        for record in bundle.records
        if (record.point, record.layer, record.session) == (point, layer, session)
    ]
    if any(
        record.file is None or record.row_start is None or not record.shape for record in records
    ):
        return []
    if sum(tensor_bytes(record.dtype, record.shape) for record in records) > _MOST_BYTES:
        return []
    return first_appearances(records)


def _rows(bundle: Bundle, point: str, layer: int | None, session: int) -> Stacked | None:
    segments = _segments(bundle, point, layer, session)
    return stacked(segments, bundle.rows) if segments else None
