"""transformers' own cache of one session, with what goes in and out of it read."""

from importlib import import_module
from typing import Any

from swarepro.hf.hooks import Current, source_of
from swarepro.hf.load import HfModel
from swarepro.hf.table import Read


def watched_cache(hf: HfModel, current: Current) -> Any:
    """Return a new ``DynamicCache`` of the model; sliding layers keep their window alone.

    What `update` gives back are the rows that the step's queries attend to: what was kept, and
    the step's own.
    """
    cache = import_module("transformers").DynamicCache(config=hf.model.config)
    update = cache.update
    rotary, kept = source_of(hf, Read.ROTARY), source_of(hf, Read.CACHE)
    values = [source for source in hf.table.sources if source.read is Read.VALUE]

    def watched(key: Any, value: Any, layer: int, *rest: Any, **more: Any) -> Any:
        given_back = update(key, value, layer, *rest, **more)
        reading = current.reading
        if reading is not None:
            where = f"the cache of layer {layer}"
            reading.take(rotary, layer, key, where=where, part=1, parts=2)
            for source in values:
                reading.take(source, layer, value, where=where)
            for part, tensor in enumerate(given_back):
                reading.take(kept, layer, tensor, where=where, part=part, parts=2)
        return given_back

    cache.update = watched
    return cache
