"""Patterns over names: literals, ``*`` and integer fields, matched without backtracking.

A user's regular expression could take exponential time; this little language cannot.
"""

from dataclasses import dataclass
from itertools import pairwise

from swarepro.errors import ForeignError

MAX_LENGTH = 256
"""Characters of a pattern."""
MAX_STARS = 4
"""Stars of a pattern: each is one more search through a name, and no more."""
MAX_NAME = 512
"""Characters of a name that is matched."""
MAX_DIGITS = 9
FIELDS = ("step", "layer", "rank", "session")
"""What a name may say of its tensor."""
_DIGITS = frozenset("0123456789")
Values = dict[str, int]


@dataclass(frozen=True, slots=True)
class _Field:
    name: str


_Piece = str | _Field
_Segment = tuple[_Piece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A compiled pattern.

    Attributes:
        text: as it was written.
        fields: names of its fields, in order.
    """

    text: str
    fields: tuple[str, ...]
    _segments: tuple[_Segment, ...]

    def match(self, name: str) -> Values | None:
        """Return the fields of ``name``, or None when the whole of it does not match.

        A field takes a number whole: no digit stands before or behind it. Time is linear in the
        length of ``name`` for each segment between stars.
        """
        if len(name) > MAX_NAME:
            return None
        first, *rest = self._segments
        found: Values = {}
        at = _forward(first, name, 0, len(name), found)
        if at is None:
            return None
        if not rest:
            return found if at == len(name) else None
        *middle, last = rest
        end = _backward(last, name, at, found)
        if end is None:
            return None
        for segment in middle:
            at = _search(segment, name, at, end, found)
            if at is None:
                return None
        return found


def compile_pattern(text: str) -> Pattern:
    """Compile ``text``.

    ``*`` stands for any characters, ``{step}``, ``{layer}``, ``{rank}`` and ``{session}`` for an
    integer without a sign. All else stands for itself.

    Raises:
        ForeignError: an unknown or doubled field, a field beside a digit or another field, a brace
            that is not closed, or more than `MAX_STARS` stars.
    """
    if not 1 <= len(text) <= MAX_LENGTH:
        raise _wrong(text, f"it has {len(text)} characters, wanted 1 to {MAX_LENGTH}")
    parts = text.split("*")
    if len(parts) - 1 > MAX_STARS:
        raise _wrong(text, f"it has {len(parts) - 1} stars, and {MAX_STARS} is the most")
    segments = tuple(_segment(part, text) for part in parts)
    names = [piece.name for part in segments for piece in part if isinstance(piece, _Field)]
    for name in names:
        if name not in FIELDS:
            raise _wrong(text, f"no such field: {name!r}", f"fields are {', '.join(FIELDS)}")
        if names.count(name) > 1:
            raise _wrong(text, f"the field {name!r} is there twice")
    return Pattern(text=text, fields=tuple(names), _segments=segments)


def _segment(part: str, text: str) -> _Segment:
    pieces: list[_Piece] = []
    rest = part
    while rest:
        literal, brace, after = rest.partition("{")
        if "}" in literal:
            raise _wrong(text, "a } closes nothing")
        if literal:
            pieces.append(literal)
        if not brace:
            break
        name, closed, rest = after.partition("}")
        if not closed:
            raise _wrong(text, "a { is not closed")
        pieces.append(_Field(name))
    for left, right in pairwise(pieces):
        if isinstance(left, _Field) and isinstance(right, _Field):
            raise _wrong(text, f"nothing stands between {left.name!r} and {right.name!r}")
        beside = left[-1] if isinstance(left, str) else right[0] if isinstance(right, str) else ""
        if beside in _DIGITS:
            raise _wrong(text, f"the digit {beside!r} stands beside a field")
    return tuple(pieces)


def _wrong(text: str, why: str, hint: str | None = None) -> ForeignError:
    shown = text if len(text) <= 60 else f"{text[:60]}..."
    return ForeignError(
        f"pattern {shown!r}: {why}",
        hint=hint or "literals, at most 4 *, and fields such as {layer}; see docs/import.md",
    )


def _forward(segment: _Segment, name: str, at: int, end: int, found: Values) -> int | None:
    """Match ``segment`` from ``at`` on; return where it ends."""
    for piece in segment:
        if isinstance(piece, str):
            if not name.startswith(piece, at, end):
                return None
            at += len(piece)
            continue
        if _begins_inside(name, at):
            return None
        stop = at
        while stop < end and name[stop] in _DIGITS:
            stop += 1
        if not _take(piece, name[at:stop], found):
            return None
        at = stop
    return at


def _backward(segment: _Segment, name: str, start: int, found: Values) -> int | None:
    """Match ``segment`` at the end of ``name``, not before ``start``; return where it begins."""
    at = len(name)
    for piece in reversed(segment):
        if isinstance(piece, str):
            if not name.endswith(piece, start, at) or at - len(piece) < start:
                return None
            at -= len(piece)
            continue
        begin = at
        while begin > start and name[begin - 1] in _DIGITS:
            begin -= 1
        if _begins_inside(name, begin) or not _take(piece, name[begin:at], found):
            return None
        at = begin
    return at


def _search(segment: _Segment, name: str, at: int, end: int, found: Values) -> int | None:
    """Find the leftmost place of ``segment`` in ``name[at:end]``; return where it ends there."""
    if not segment:
        return at
    head = segment[0]
    while at <= end:
        if isinstance(head, str):
            at = name.find(head, at, end)
            if at < 0:
                return None
        stop = _forward(segment, name, at, end, found)
        if stop is not None:
            return stop
        at += 1
    return None


def _begins_inside(name: str, at: int) -> bool:
    """Return whether a field from ``at`` on would be the rest of a number, not all of it."""
    return at > 0 and name[at - 1] in _DIGITS


def _take(piece: _Field, digits: str, found: Values) -> bool:
    if not 1 <= len(digits) <= MAX_DIGITS:
        return False
    found[piece.name] = int(digits)
    return True
