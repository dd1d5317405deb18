"""Which captured boundaries one may need to be explained by, and until when they are needed.

The edges are those of `swarepro.compare.inputs`. When they are needed no more is the same in every
step: it is found once, on two steps that stand for all, one and the one before it in its session.
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from swarepro import points
from swarepro.bundle.schema import Manifest, Phase, SpanEntry, StepEntry
from swarepro.compare.inputs import InputGraph, Place
from swarepro.points import ExecKey


class Spot(NamedTuple):
    """A boundary without its step and session."""

    stage: int
    point: str
    layer: int | None


class Reach:
    """The captured inputs of every boundary.

    Where an input is not captured, or not among ``ends``, its own inputs are followed, as far as
    the step goes; of a step before, no further than to what the pools, slots and tokens hold over.

    Args:
        manifest: of the run: its stages and steps.
        captured: every boundary of a step that is captured.
        ends: those of them that are compared, and so need not be looked behind.
    """

    def __init__(
        self, manifest: Manifest, captured: Collection[Spot], ends: Collection[Spot]
    ) -> None:
        self._captured = {spot: order(spot) for spot in captured}
        self._ends = self._captured.keys() & frozenset(ends)
        self._graph = _graph(manifest)
        steps = (_step(0, "prefill"), _step(1, "decode"))
        any_step = _graph(replace(manifest, steps=steps))
        self._until: dict[tuple[Spot, bool], ExecKey] = {}
        for spot in sorted(self._ends, key=order):
            place = Place(step=1, session=0, stage=spot.stage, point=spot.point, layer=spot.layer)
            for needed in self._follow(any_step, place):
                self._until[spot_of(needed), needed.step == 0] = order(spot)

    def inputs(self, place: Place) -> Iterator[Place]:
        """Yield what is captured of what ``place`` is computed from."""
        return self._follow(self._graph, place)

    def until(self, spot: Spot, *, later: bool) -> ExecKey | None:
        """Return the last boundary that may need ``spot`` as an input, by `order`; None = none.

        Args:
            spot: a captured boundary.
            later: of a step that goes on from its own; else of its own.
        """
        return self._until.get((spot, later))

    def order(self, spot: Spot) -> ExecKey:
        """Return the place of a captured boundary in the execution order of a step."""
        return self._captured[spot]

    def _follow(self, graph: InputGraph, place: Place) -> Iterator[Place]:
        stack, seen = [place], {place}
        while stack:
            for parent in graph.parents(stack.pop()):
                if parent in seen:
                    continue
                seen.add(parent)
                spot = spot_of(parent)
                if spot in self._captured:
                    yield parent
                if parent.step == place.step and spot not in self._ends:
                    stack.append(parent)


def spot_of(place: Place) -> Spot:
    """Return ``place`` without its step and session."""
    return Spot(place.stage, place.point, place.layer)


def order(spot: Spot) -> ExecKey:
    """Return the place of ``spot`` in the execution order of a step."""
    return points.exec_key(
        points.by_name(spot.point), step=0, stage=spot.stage, layer=spot.layer, occurrence=0
    )


def _graph(manifest: Manifest) -> InputGraph:
    return InputGraph(manifest, lambda place: None)


def _step(index: int, phase: Phase) -> StepEntry:
    span = SpanEntry(session=0, start=index, end=index + 1)
    return StepEntry(index=index, phase=phase, spans=(span,), reset=False)
