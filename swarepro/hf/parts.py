"""Puts together what hooks read of one span, checks its shape, and hands it to the tap."""

from collections.abc import Mapping

import torch

from swarepro import points
from swarepro.capture import StageTap
from swarepro.errors import EngineError
from swarepro.hf.table import Read, Source
from swarepro.plan import Span

Place = tuple[str, int | None]
"""A point's declared name, and the layer."""


class SpanReading:
    """What was read of one span; every place has to be read, in its shape and once.

    Args:
        span: whose rows the model computes.
        tap: takes what is complete.
        wanted: the shape of every place.
        dtype: of values.
    """

    def __init__(
        self,
        span: Span,
        tap: StageTap,
        wanted: Mapping[Place, tuple[int, ...]],
        dtype: torch.dtype,
    ) -> None:
        self._span = span
        self._tap = tap
        self._wanted = wanted
        self._dtype = dtype
        self._parts: dict[Place, dict[int, torch.Tensor]] = {}
        self._done: set[Place] = set()

    def take(
        self,
        source: Source,
        layer: int | None,
        tensor: object,
        *,
        where: str,
        part: int = 0,
        parts: int = 1,
    ) -> None:
        """Take one part of a point; the last one completes it.

        Args:
            source: of the point.
            layer: global layer id, or None.
            tensor: as transformers has it, see `Read`.
            where: what it was read from, for messages.
            part: which of its parts it is.
            parts: how many there are.

        Raises:
            EngineError: it is no tensor of the shape and dtype that is wanted, or it is there
                twice.
        """
        place = source.point.name, layer
        if place not in self._wanted:
            raise EngineError(f"transformers: {where} gives {_name(place)}, which is not expected")
        if not isinstance(tensor, torch.Tensor):
            raise EngineError(
                f"transformers: {where} gives {type(tensor).__name__}; wanted a tensor for"
                f" {_name(place)}"
            )
        own = self._parts.setdefault(place, {})
        rows = _rows(tensor, source, where)
        if source.read is Read.POSITIONS and part in own and torch.equal(own[part], rows):
            return  # the rotary module is called once for each kind of layer
        if part in own:
            raise EngineError(f"transformers: {where} gives {_name(place)} twice in one step")
        own[part] = rows
        if len(own) == parts:
            self._complete(source, layer, [own[index] for index in range(parts)], where)

    def finish(self) -> None:
        """Raise EngineError where a place was not read."""
        for place in self._wanted:
            if place not in self._done:
                raise EngineError(
                    f"transformers: nothing gave {_name(place)} in this step",
                    hint="a module of the table was not called, or not with these arguments",
                )

    def _complete(
        self, source: Source, layer: int | None, parts: list[torch.Tensor], where: str
    ) -> None:
        place = source.point.name, layer
        x = _joined(source, parts)
        wanted = self._wanted[place]
        if source.point is points.ATTENTION_OUTPUT and x.shape[:1] == wanted[:1]:
            x = x.reshape(x.shape[0], wanted[1], -1)
        if tuple(x.shape) != wanted:
            raise EngineError(
                f"transformers: {where} gives {_name(place)} of shape {list(x.shape)};"
                f" wanted {list(wanted)}"
            )
        if x.is_floating_point() and x.dtype != self._dtype:
            raise EngineError(
                f"transformers: {where} gives {_name(place)} in {x.dtype}; wanted {self._dtype}"
            )
        self._done.add(place)
        self._tap(
            source.point, x, layer, session=self._span.session, row_start=self._row_start(source, x)
        )

    def _row_start(self, source: Source, x: torch.Tensor) -> int | None:
        dims = source.point.dims
        if not dims:
            return None
        return self._span.end - x.shape[0] if dims[0] != "T" else self._span.start


def _rows(tensor: torch.Tensor, source: Source, where: str) -> torch.Tensor:
    """Return ``tensor`` without its batch, rows first, and only the last row where that is it."""
    if source.read is Read.PREFIX:
        return tensor
    if tensor.dim() < 2 or tensor.shape[0] != 1:
        raise EngineError(
            f"transformers: {where} gives shape {list(tensor.shape)}; wanted a batch of 1"
        )
    x = tensor[0]
    if source.heads_first or source.read in (Read.ROTARY, Read.VALUE, Read.CACHE):
        x = x.transpose(0, 1)
    return x[-1:] if source.point.dims[0] == "1" else x


def _joined(source: Source, parts: list[torch.Tensor]) -> torch.Tensor:
    if source.read is Read.CACHE:
        return torch.stack(parts, dim=1)  # [C, 2, K, D]
    if len(parts) == 1:
        return parts[0].contiguous()
    return torch.cat(parts, dim=1 if source.read is Read.ROTARY else -1)


def _name(place: Place) -> str:
    return points.by_name(place[0]).concrete(place[1])
