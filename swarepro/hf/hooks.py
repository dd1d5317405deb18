"""Hooks into a model of transformers, set for one run and taken out again."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from swarepro.errors import EngineError
from swarepro.hf.load import HfModel
from swarepro.hf.parts import SpanReading
from swarepro.hf.table import ATTENTION, LAYERS, TEXT_MODEL, Read, Source


@dataclass(slots=True)
class Current:
    """The span that the model computes now; hooks read nothing where there is none."""

    reading: SpanReading | None = None


@contextmanager
def watch(hf: HfModel, num_layers: int, current: Current) -> Iterator[None]:
    """Read every point of the table that a module or the attention function sees.

    Args:
        hf: the model.
        num_layers: that it has.
        current: says to what the readings belong.
    """
    modules = dict(hf.model.named_modules())
    with ExitStack() as stack:
        for source in hf.table.sources:
            if source.modules:
                layers = range(num_layers) if "{layer}" in source.point.name else (None,)
                for layer in layers:
                    for handle in _hooks(modules, source, layer, current):
                        stack.callback(handle.remove)
        stack.enter_context(_watched_attention(hf, modules, current))
        yield


def _hooks(
    modules: dict[str, Any], source: Source, layer: int | None, current: Current
) -> Iterator[Any]:
    prefix = TEXT_MODEL if layer is None else f"{LAYERS}.{layer}"
    paths = [f"{prefix}.{name}" if name else prefix for name in source.modules]
    there = [path for path in paths if path in modules]
    for part, path in enumerate(there):
        read = _reader(source, layer, f"module {path!r}", part, len(there), current)
        if source.read is Read.OUTPUT:
            yield modules[path].register_forward_hook(
                lambda module, given, output, read=read: read(output)
            )
        else:
            place = 1 if source.read is Read.POSITIONS else 0
            yield modules[path].register_forward_pre_hook(
                lambda module, given, read=read, place=place: read(
                    given[place] if len(given) > place else None
                )
            )


def _reader(
    source: Source, layer: int | None, where: str, part: int, parts: int, current: Current
) -> Callable[[object], None]:
    def read(tensor: object) -> None:
        if current.reading is not None:
            current.reading.take(source, layer, tensor, where=where, part=part, parts=parts)

    return read


@contextmanager
def _watched_attention(hf: HfModel, modules: dict[str, Any], current: Current) -> Iterator[None]:
    """Put a function before the model's attention function that reads the query.

    transformers looks its attention functions up by name at every call; the name stays, so that
    nothing else of the model changes.
    """
    source = source_of(hf, Read.ROTARY)
    layers = {
        id(module): int(path.split(".")[-2])
        for path, module in modules.items()
        if path.endswith(f".{ATTENTION}")
    }
    home = sys.modules[type(hf.model).__module__]
    functions, eager = (
        getattr(home, name, None) for name in ("ALL_ATTENTION_FUNCTIONS", "eager_attention_forward")
    )
    if functions is None or eager is None:
        raise EngineError(
            f"transformers: {home.__name__} has no attention functions to choose from",
            hint="this version of transformers is not known here",
        )
    before = functions.get(hf.attention)
    real = functions.get_interface(hf.attention, eager)

    def attend(module: Any, query: Any, *rest: Any, **more: Any) -> Any:
        if current.reading is not None and id(module) in layers:
            layer = layers[id(module)]
            current.reading.take(
                source, layer, query, where=f"the attention of layer {layer}", part=0, parts=2
            )
        return real(module, query, *rest, **more)

    functions[hf.attention] = attend
    try:
        yield
    finally:
        del functions[hf.attention]
        if functions.get(hf.attention) is not before:  # somebody else had put one there
            functions[hf.attention] = before


def source_of(hf: HfModel, read: Read) -> Source:
    """Return the one source of the table that is read like this."""
    (source,) = (source for source in hf.table.sources if source.read is read)
    return source
