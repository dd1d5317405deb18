"""From what a boundary was computed: tells the source of a divergence from what merely inherits it.

The edges are the inputs that `swarepro.points` declares, at concrete stages and layers, and what
persists from one step of a session to the next: the pool, the slots and the token. A session that
takes over another's rows goes on from that one's last step, and from those that wrote the rows.

Sessions share the pools, yet no edge leads from one to another that runs beside it: what a store of
another session does to these rows is no input but the harm itself. Rows that differ although the
session's own last store left them equal, or a store that differs although its rows, slots and the
rows before it are equal, are a source: somebody changed them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from swarepro import points
from swarepro.bundle.schema import Manifest
from swarepro.compare.steps import phase_of, previous_spans
from swarepro.points import PointKind, Scope

_PREVIOUS = "@previous"
_RECV = points.BOUNDARY_RECV_HIDDEN.name
_FROM_LAST_STEP = {
    points.KV_SLICE_PRE_WRITE.name: points.KV_SLICE_POST_WRITE.name,
    points.FULL_SLOTS.name: points.FULL_SLOTS.name,
    points.SWA_SLOTS.name: points.SWA_SLOTS.name,
}
"""What a point holds over from the step that its session goes on from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One boundary that a run may have captured."""

    step: int
    stage: int
    session: int
    point: str
    layer: int | None

    @property
    def name(self) -> str:
        """As users see it."""
        return points.by_name(self.point).concrete(self.layer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What is known of the inputs of one boundary.

    Attributes:
        differ: a captured one differs, directly or through inputs that were not captured.
        unseen: kinds of those that were not captured and judged on both sides, up to captured ones.
    """

    differ: bool
    unseen: frozenset[PointKind]


_NOTHING = Inputs(differ=False, unseen=frozenset())


class InputGraph:
    """The data flow of one run.

    Args:
        manifest: of the run.
        differs: whether a boundary diverges; None when it was not captured or not judged on both
            sides, and then its own inputs may still show that it does.
        ignored: points that differ by intent, or that the model lacks; their inputs take their
            place.
    """

    def __init__(
        self,
        manifest: Manifest,
        differs: Callable[[Place], bool | None],
        *,
        ignored: frozenset[str] = frozenset(),
    ) -> None:
        self._stages = manifest.stages
        self._sliding = {owned.stage for owned in manifest.ownership if owned.group == "sliding"}
        self._judged = differs
        self._ignored = ignored
        self._known: dict[Place, Inputs] = {}
        self._phase = {
            (step.index, span.session): phase_of(step, span)
            for step in manifest.steps
            for span in step.spans
        }
        self._previous = previous_spans(manifest)

    def inputs(self, place: Place) -> Inputs:
        """Return what is known of the inputs of ``place``."""
        return _together([self._look(parent) for parent in self.parents(place)])

    def _look(self, place: Place) -> Inputs:
        """Return what ``place`` itself, as an input, and all that lies behind it contribute."""
        stack = [place]  # not recursion: uncaptured chains are as deep as the run is long
        while stack:
            current = stack[-1]
            if current in self._known:
                stack.pop()
                continue
            judged = self._judged(current)
            if judged is not None:
                found = Inputs(differ=judged, unseen=frozenset())
            elif not self._exists(current):
                found = _NOTHING
            else:
                parents = list(self.parents(current))
                ahead = [parent for parent in parents if parent not in self._known]
                if ahead:
                    stack += ahead
                    continue
                own = _NOTHING if current.point in self._ignored else _unseen(current)
                found = _together([own, *(self._known[parent] for parent in parents)])
            self._known[current] = found
            stack.pop()
        return self._known[place]

    def _exists(self, place: Place) -> bool:
        """Return whether the run has this boundary at all, captured or not.

        `parents` follows the stages and their layers; the manifest alone knows which slide.
        """
        return place.point != points.SWA_SLOTS.name or place.stage in self._sliding

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
        here = place.step, place.session
        if here not in self._previous:
            return
        step, session = self._previous[here][0]
        if place.point in _FROM_LAST_STEP:
            point = _FROM_LAST_STEP[place.point]
            is_pool = point == points.KV_SLICE_POST_WRITE.name
            for at, of in self._previous[here] if is_pool else self._previous[here][:1]:
                yield replace(place, step=at, session=of, point=point)
        elif (
            place.point == points.INPUT_IDS.name
            and session == place.session  # a prompt that begins by a reuse is given, not generated
            and self._phase[here] == "decode"
        ):
            last = len(self._stages) - 1
            yield replace(place, step=step, stage=last, point=points.TOKEN.name, layer=None)

    def _residual_before(self, place: Place) -> Place:
        stage = self._stages[place.stage]
        layer = stage.layer_end if place.layer is None else place.layer
        if layer > stage.layer_start:
            return replace(place, point=points.AFTER_LAYER.name, layer=layer - 1)
        first = points.EMBEDDING_OUTPUT.name if layer == 0 else _RECV
        return replace(place, point=first, layer=None)


def _unseen(place: Place) -> Inputs:
    return Inputs(differ=False, unseen=frozenset((points.by_name(place.point).kind,)))


BY_STAGE = frozenset((points.BOUNDARY_SEND_HIDDEN.name, _RECV))
"""Points that every stage has its own of; others of a session's step are the same in all stages."""


def _together(parts: Sequence[Inputs]) -> Inputs:
    return Inputs(
        differ=any(part.differ for part in parts),
        unseen=frozenset().union(*(part.unseen for part in parts)),
    )
