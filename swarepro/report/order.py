"""Which boundary may come before which: what a one-sided point does to "exactly here"."""

import re
from typing import Literal

from swarepro.compare.types import BoundaryDiff, Divergence, OneSided
from swarepro.points import ALL, CapturePoint, Scope

Bound = Literal["exact", "here-or-before"]

_SCOPES = (Scope.STEP, Scope.LAYER, Scope.TAIL)
_PATTERNS = tuple(
    (re.compile(re.escape(point.name).replace(r"\{layer\}", r"(\d+)")), index, point)
    for index, point in enumerate(ALL)
)


def bound_of(divergence: Divergence, boundary: BoundaryDiff) -> Bound:
    """Say whether ``boundary`` is exactly where its kind of divergence begins.

    ``divergence.exact`` answers for the first boundary of all. The first state or value boundary is
    also only "here or before" when a point of its kind that one side alone captured may lie before
    it. Where the steps of both sides differ (alignment by position), any such point counts.
    """
    if not divergence.exact:
        return "here-or-before"
    if boundary == divergence.first:
        return "exact"
    sides = (*divergence.only_baseline, *divergence.only_target)
    hidden = any(_may_hide(divergence, one, boundary) for one in sides)
    return "here-or-before" if hidden else "exact"


def _may_hide(divergence: Divergence, one: OneSided, boundary: BoundaryDiff) -> bool:
    found, place = _locate(one.name)
    if found is not None and found.kind is not boundary.kind:
        return False
    if divergence.align == "position" or one.step < boundary.step:
        return True
    if one.step > boundary.step:
        return False
    return place <= _locate(boundary.name)[1]


def _locate(name: str) -> tuple[CapturePoint | None, tuple[int, int, int]]:
    """Return the declared point of ``name`` and its place in a step: scope, layer, point.

    The sending and receiving of hidden states happen once a stage; both count as early as they can.
    """
    for pattern, index, point in _PATTERNS:
        match = pattern.fullmatch(name.partition("#")[0])
        if match is None:
            continue
        if point.name == "boundary_send_hidden":
            return point, (0, 0, 0)
        layer = int(match.group(1)) if point.scope is Scope.LAYER else 0
        return point, (_SCOPES.index(point.scope), layer, index)
    return None, (0, 0, 0)
