"""Defects of a stage's layer table."""

from dataclasses import replace

from swarepro.faults.base import Effect, register
from swarepro.kvcache import KVGroup
from swarepro.runtime.parts import LayerPlace, Layers
from swarepro.runtime.wrappers import on_layers


class BuffersByAnotherMix:
    """A later stage takes its SWA buffers by the first stage's mix: two layers share the first."""

    def __init__(self, inner: Layers) -> None:
        self._inner = inner

    def places(self) -> tuple[LayerPlace, ...]:
        """Number the sliding layers of a later stage one too low."""
        places = self._inner.places()
        if places[0].layer == 0:
            return places
        return tuple(
            replace(place, pool_layer=max(0, place.pool_layer - 1))
            if place.group is KVGroup.SLIDING
            else place
            for place in places
        )


class LocalLayerIds:
    """A stage looks its layers up by their index in the stage."""

    def __init__(self, inner: Layers) -> None:
        self._inner = inner

    def places(self) -> tuple[LayerPlace, ...]:
        """Give every layer the config of the model's layer with its local index."""
        places = self._inner.places()
        return tuple(replace(place, config_layer=local) for local, place in enumerate(places))


class OffsetOfEvenSplit:
    """A stage's first layer is taken to be its rank times its own length, as if all were equal."""

    def __init__(self, inner: Layers) -> None:
        self._inner = inner

    def places(self) -> tuple[LayerPlace, ...]:
        """Give every layer the config of another, if the stages are not of one length."""
        places = self._inner.places()
        first, count = places[0].layer, len(places)
        offset = round(first / count) * count
        return tuple(
            replace(place, config_layer=offset + local) for local, place in enumerate(places)
        )


register(
    "buffers-by-another-mix",
    "G2",
    "a later stage numbers its SWA buffers by the first stage's layers: two layers share one",
    part="layers",
    effect=Effect.DIVERGES,
    wrap=on_layers(BuffersByAnotherMix),
)
register(
    "local-layer-ids",
    "G4",
    "a stage takes its layers' kinds by their index in the stage: right where the pattern begins",
    part="layers",
    effect=Effect.DIVERGES,
    wrap=on_layers(LocalLayerIds),
)
register(
    "offset-of-even-split",
    "G4",
    "a stage takes its first layer to be rank x count: on an uneven split kinds are wrong",
    part="layers",
    effect=Effect.DIVERGES,
    wrap=on_layers(OffsetOfEvenSplit),
)
