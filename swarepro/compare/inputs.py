"""From what a boundary was computed: tells the source of a divergence from what merely inherits it.

The edges are the inputs that `swarepro.points` declares, at concrete stages and layers, and what
persists from one step of a session to the next: the pool, the slots and the token.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from swarepro import points
from swarepro.bundle.schema import Manifest
from swarepro.points import Scope

_PREVIOUS = "@previous"
_RECV = points.BOUNDARY_RECV_HIDDEN.name
_FROM_LAST_STEP = {
    points.KV_SLICE_PRE_WRITE.name: points.KV_SLICE_POST_WRITE.name,
    points.FULL_SLOTS.name: points.FULL_SLOTS.name,
    points.SWA_SLOTS.name: points.SWA_SLOTS.name,
}
"""What a point holds over from the session's previous step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One boundary that a run may have captured."""

    step: int
    stage: int
    point: str
    layer: int | None

    @property
    def name(self) -> str:
        """As users see it."""
        return points.by_name(self.point).concrete(self.layer)


class InputGraph:
    """The data flow of one run.

    Args:
        manifest: of the run.
        differs: whether a boundary diverges; None when it was not captured or not judged on both
            sides, and then its own inputs answer for it.
    """

    def __init__(self, manifest: Manifest, differs: Callable[[Place], bool | None]) -> None:
        self._stages = manifest.stages
        self._judged = differs
        self._known: dict[Place, bool] = {}
        self._phase = {step.index: step.phase for step in manifest.steps}
        self._previous_step: dict[int, int] = {}
        last: dict[int, int] = {}
        for step in manifest.steps:
            for span in step.spans:
                if span.session in last:
                    self._previous_step[step.index] = last[span.session]
                last[span.session] = step.index

    def inherits(self, place: Place) -> bool:
        """Return whether a captured input of ``place`` differs."""
        return any(self._differs(parent) for parent in self.parents(place))

    def _differs(self, place: Place) -> bool:
        stack = [place]  # not recursion: uncaptured chains are as deep as the run is long
        while stack:
            current = stack[-1]
            if current in self._known:
                stack.pop()
                continue
            judged = self._judged(current)
            if judged is None:
                parents = list(self.parents(current))
                if any(self._known.get(parent) for parent in parents):
                    judged = True
                else:
                    unknown = [parent for parent in parents if parent not in self._known]
                    stack += unknown
                    if unknown:
                        continue
                    judged = False
            self._known[current] = judged
            stack.pop()
        return self._known[place]

    def parents(self, place: Place) -> Iterator[Place]:
        """Yield what ``place`` is computed from, captured or not."""
        for name in points.by_name(place.point).inputs:
            if name.endswith(_PREVIOUS):
                yield self._residual_before(place)
            elif place.point == _RECV:
                if place.stage > 0:
                    yield replace(place, point=name, stage=place.stage - 1)
            else:
                in_layer = points.by_name(name).scope is Scope.LAYER
                yield replace(place, point=name, layer=place.layer if in_layer else None)
        step = self._previous_step.get(place.step)
        if step is None:
            return
        if place.point in _FROM_LAST_STEP:
            yield replace(place, step=step, point=_FROM_LAST_STEP[place.point])
        elif place.point == points.INPUT_IDS.name and self._phase[place.step] == "decode":
            last_stage = len(self._stages) - 1
            yield Place(step=step, stage=last_stage, point=points.TOKEN.name, layer=None)

    def _residual_before(self, place: Place) -> Place:
        stage = self._stages[place.stage]
        layer = stage.layer_end if place.layer is None else place.layer
        if layer > stage.layer_start:
            return replace(place, point=points.AFTER_LAYER.name, layer=layer - 1)
        first = points.EMBEDDING_OUTPUT.name if layer == 0 else _RECV
        return replace(place, point=first, layer=None)


BY_STAGE = frozenset((points.BOUNDARY_SEND_HIDDEN.name, _RECV))
"""Points that every stage has its own of; other points of a step are the same in all stages."""
