"""Defects of the layer table's windows: which layers have one, and how large it is."""

from collections.abc import Callable
from dataclasses import replace

from swarepro.faults.base import Effect, register
from swarepro.kvcache import KVGroup
from swarepro.runtime.parts import LayerPlace, Layers
from swarepro.runtime.wrappers import on_layers

Change = Callable[[LayerPlace, LayerPlace], LayerPlace]
"""Returns the place that a layer gets, given its own and that of a layer of the other kind."""


class ChangedWindows:
    """A layer table in which the layers of one group are another's in part.

    A stage that has layers of one kind alone stays as it is.

    Args:
        inner: the right table.
        group: whose layers change.
        change: how.
    """

    def __init__(self, inner: Layers, group: KVGroup, change: Change) -> None:
        self._inner = inner
        self._group = group
        self._change = change

    def places(self) -> tuple[LayerPlace, ...]:
        """Return the wrapped table's places, changed."""
        places = self._inner.places()
        others = [place for place in places if place.group is not self._group]
        if not others:
            return places
        return tuple(
            self._change(place, others[0]) if place.group is self._group else place
            for place in places
        )


class OtherWindowSize:
    """A layer table whose windows hold ``by`` keys more."""

    def __init__(self, inner: Layers, by: int) -> None:
        self._inner = inner
        self._by = by

    def places(self) -> tuple[LayerPlace, ...]:
        """Return the wrapped table's places, with another window."""
        return tuple(
            place
            if place.window_left is None
            else replace(place, window_left=place.window_left + self._by)
            for place in self._inner.places()
        )


def _kind(place: LayerPlace, other: LayerPlace) -> LayerPlace:
    return replace(place, config_layer=other.layer, window_left=other.window_left)


def _window(place: LayerPlace, other: LayerPlace) -> LayerPlace:
    return replace(place, window_left=other.window_left)


def _register(name: str, summary: str, group: KVGroup, change: Change) -> None:
    register(
        name,
        "B1",
        summary,
        part="layers",
        effect=Effect.DIVERGES,
        wrap=on_layers(lambda layers: ChangedWindows(layers, group, change)),
    )


def _register_size(name: str, summary: str, by: int) -> None:
    register(
        name,
        "B2",
        summary,
        part="layers",
        effect=Effect.DIVERGES,
        wrap=on_layers(lambda layers: OtherWindowSize(layers, by)),
    )


_register(
    "every-layer-sliding",
    "the pattern of layers is not known: full layers have the window and rope of sliding ones",
    KVGroup.FULL,
    _kind,
)
_register(
    "no-layer-sliding",
    "the pattern of layers is not known: sliding layers have the rope of full ones, and no window",
    KVGroup.SLIDING,
    _kind,
)
_register(
    "every-layer-windowed",
    "full layers get the window of sliding ones, and keep their own rope",
    KVGroup.FULL,
    _window,
)
_register(
    "no-layer-windowed",
    "sliding layers get no window, and keep their own rope",
    KVGroup.SLIDING,
    _window,
)
_register_size("window-one-too-large", "a window holds one key too many", 1)
_register_size("window-one-too-small", "a window holds one key too few", -1)
