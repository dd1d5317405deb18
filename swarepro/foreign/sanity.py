"""Dumps that cannot be right: what an import refuses, with the reason.

Each check can be allowed in the map, by a person who knows why; the manifest then says so.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from swarepro import points
from swarepro.bundle.schema import TensorRecord
from swarepro.foreign.delta import DeltaWatch, Judgement
from swarepro.foreign.maps import Check
from swarepro.foreign.numbers import to_float32
from swarepro.foreign.pieces import Piece
from swarepro.foreign.timeline import Timeline
from swarepro.points import PointKind

_BEFORE_ROPE = frozenset(
    point.name
    for point in (
        *(points.INPUT_NORMED, points.QKV_PROJECTED, points.Q_NORMED, points.K_NORMED),
        points.V_NORMED,
    )
)
"""In layer 0 they depend on the token alone: the same token gives the same bytes."""
_SHARED = frozenset((points.K_NORMED.name, points.V_NORMED.name))
"""What some models compute once for several layers."""
_GLANCE = 4096
_Bytes = tuple[str, str, tuple[int, ...]]
"""What two records with the same bytes have in common: digest, dtype, shape."""
_TAIL = frozenset(
    point.name for point in (points.BOUNDARY_SEND_HIDDEN, points.FINAL_NORM, points.LOGITS)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One reason why a dump cannot be right."""

    check: Check
    why: str


class Sanity:
    """Sees every piece of a dump in execution order."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._deltas = DeltaWatch()
        self._records: list[TensorRecord] = []

    def see(self, piece: Piece) -> None:
        """Take the next piece."""
        if piece.record.kind is PointKind.VALUE and _tells(piece):
            self._deltas.see(piece)
            self._records.append(piece.record)

    def refusals(self, ids: Sequence[Sequence[int]]) -> tuple[Refusal, ...]:
        """Return what is wrong.

        Args:
            ids: all token ids that went in, by session, as far as they are known.
        """
        return (
            *(Refusal(check="same-layers", why=why) for why in self._same_layers()),
            *(Refusal(check="same-steps", why=why) for why in self._same_steps(ids)),
            *(Refusal(check="delta", why=why) for why in self._delta()),
        )

    def notes(self) -> tuple[str, ...]:
        """Return what was checked and what could not be."""
        judged = self._deltas.judgements()
        sure = [one for one in judged if one.is_residual is True]
        layers = {one.layer for one in judged} - {one.layer for one in sure}
        found = []
        if sure:
            found.append(
                f"The residual plane was checked in {_layers(len({x.layer for x in sure}))}: the"
                " next layer's norm is of it."
            )
        if layers:
            first = next(one for one in judged if one.layer == min(layers))
            found.append(
                f"The residual plane could not be checked in {_layers(len(layers))} (first"
                f" after_layer_{first.layer}: {first.why})."
            )
        return tuple(found)

    def _same_layers(self) -> Iterator[str]:
        """Layers compute different things; under graph replay a dump shows one buffer again.

        Two buffers in turn look the same way. Neighbours may agree where a layer adds nothing, and
        keys and values where layers share them.
        """
        layers: dict[tuple[str, int, int], dict[_Bytes, list[int]]] = {}
        for record in self._records:
            if record.layer is not None:
                key = record.point, record.step, record.session
                layers.setdefault(key, {}).setdefault(_bytes(record), []).append(record.layer)
        for (point, step, session), by_bytes in layers.items():
            number = sum(map(len, by_bytes.values()))
            most = max(by_bytes.values(), key=len)
            if len(most) == number > 1:
                which = f"all {number} layers"
            elif point not in _SHARED and (again := _again(by_bytes.values())):
                which = f"layers {' and '.join(map(str, again))}, and others between them,"
            else:
                continue
            yield (
                f"{point} has the same bytes in {which} of {self._engine_step(step)}, session"
                f" {session}: one buffer was dumped again and again, as under a replayed graph"
            )

    def _same_steps(self, ids: Sequence[Sequence[int]]) -> Iterator[str]:
        """What depends on the positions differs between two steps over other positions."""
        spans = {
            (step.index, span.session): (span.start, span.end)
            for step in self._timeline.steps
            for span in step.spans
        }
        first: dict[tuple[str, int, _Bytes], TensorRecord] = {}
        for record in self._records:
            if not _depends_on_position(record):
                continue
            if record.session < len(ids) and ids[record.session] and _is_one(ids[record.session]):
                continue  # of one token again and again, all rows may be the same
            key = record.name, record.session, _bytes(record)
            other = first.setdefault(key, record)
            here, there = (spans[one.step, one.session] for one in (record, other))
            if here != there:
                yield (
                    f"{record.name} of {self._engine_step(record.step)} (positions {here[0]} to"
                    f" {here[1] - 1}) has the bytes of {self._engine_step(other.step)} (positions"
                    f" {there[0]} to {there[1] - 1}): a tensor of another step"
                )

    def _delta(self) -> Iterator[str]:
        wrong: dict[int, Judgement] = {}
        for judgement in self._deltas.judgements():
            if judgement.is_residual is False:
                wrong.setdefault(judgement.layer, judgement)
        for layer, judgement in wrong.items():
            yield (
                f"after_layer_{layer} of {self._engine_step(judgement.step)} is a delta and not the"
                f" residual stream: {judgement.why}"
            )

    def _engine_step(self, place: int) -> str:
        return f"step {self._timeline.numbers[place]}"


def _layers(number: int) -> str:
    return "1 layer" if number == 1 else f"{number} layers"


def _bytes(record: TensorRecord) -> _Bytes:
    return record.digest, record.dtype, record.shape


def _again(groups: Iterable[list[int]]) -> tuple[int, int] | None:
    """Return two layers of one group between which another lies; None where there are none."""
    own = {layer: place for place, group in enumerate(groups) for layer in group}
    ordered = sorted(own)
    last: dict[int, int] = {}
    for at, layer in enumerate(ordered):
        before = last.get(own[layer])
        if before is not None and before != at - 1:
            return ordered[before], layer
        last[own[layer]] = at
    return None


def _tells(piece: Piece) -> bool:
    """Return whether a tensor has two different finite values: zeros and NaN are often the same."""
    if piece.array is None:
        return True
    flat = piece.array.reshape(-1)
    for part in (flat[:_GLANCE], flat[_GLANCE:]):
        values = to_float32(part, piece.record.dtype)
        values = values[np.isfinite(values)]
        if values.size and bool((values != values[0]).any()):
            return True
    return False


def _depends_on_position(record: TensorRecord) -> bool:
    if record.layer is None:
        return record.point in _TAIL
    return record.layer > 0 or record.point not in _BEFORE_ROPE


def _is_one(ids: Sequence[int]) -> bool:
    return len(set(ids)) == 1
