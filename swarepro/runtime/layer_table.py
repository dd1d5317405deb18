"""From a stage's global layers to what is their own: config, pool, index in the pool."""

from swarepro.kvcache import KVGroupSpec
from swarepro.runtime.parts import LayerPlace


class StageLayers:
    """The layer table of one stage.

    Args:
        groups: of the stage's layers; a layer's place in its group is its pool layer.
    """

    def __init__(self, groups: tuple[KVGroupSpec, ...]) -> None:
        places = [
            LayerPlace(
                layer=layer,
                config_layer=layer,
                group=group.group,
                pool_layer=index,
                window_left=group.window_left,
            )
            for group in groups
            for index, layer in enumerate(group.layer_ids)
        ]
        self._places = tuple(sorted(places, key=lambda place: place.layer))

    def places(self) -> tuple[LayerPlace, ...]:
        """Return the places of the stage's layers, in execution order."""
        return self._places
