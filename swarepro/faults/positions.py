"""Defects of position ids."""

from swarepro.faults.base import Effect, register
from swarepro.plan import Span
from swarepro.runtime.wrappers import on_metadata


def _chunk_local(span: Span, window_left: int | None) -> int:
    return 0


def _counted_twice(span: Span, window_left: int | None) -> int:
    return 2 * span.start


def _length_of_sliding_layer(span: Span, window_left: int | None) -> int:
    return span.start if window_left is None else min(span.start, window_left + 1)


register(
    "chunk-local-positions",
    "C3",
    "every chunk's positions begin at 0 again",
    part="metadata",
    effect=Effect.DIVERGES,
    wrap=on_metadata(_chunk_local),
)
register(
    "positions-counted-twice",
    "C3",
    "the prefix is added to a chunk's positions twice",
    part="metadata",
    effect=Effect.DIVERGES,
    wrap=on_metadata(_counted_twice),
)
register(
    "length-from-sliding-layer",
    "D2",
    "the cache's length is read from a sliding layer: positions stand still at the window",
    part="metadata",
    effect=Effect.DIVERGES,
    wrap=on_metadata(_length_of_sliding_layer),
)
