"""Defects of the mask: which keys an attention implementation lets a query see."""

from dataclasses import replace

import torch

from swarepro.faults.base import Effect, register
from swarepro.faults.calls import part, seen_from
from swarepro.kvcache import KVGroup
from swarepro.plan import Phase, Span
from swarepro.runtime.parts import Attention, AttentionCall, PartWrapper, Request, StageParts
from swarepro.runtime.wrappers import AttentionWrapper, on_attention


class OneKeyTooManyInPrefill(AttentionWrapper):
    """A backend counts the keys to the left of a query as if the window were one larger.

    A decoded token's keys are cut to the window before it is asked.
    """

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Attend with the mask of another window."""
        window = call.window_left
        return super().attend(replace(call, window_left=None if window is None else window + 1))


class WindowNeverSet(AttentionWrapper):
    """Nobody tells the backend that there is a window: each query sees all keys that it is given.

    These are all of the past in a prompt's first chunk; later ones are given those that their
    first query sees.
    """

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Attend with the causal mask alone."""
        return super().attend(replace(call, window_left=None))


class WindowOfGroupOnAll(AttentionWrapper):
    """The window that the backend was set up with is used in every layer, in full ones too.

    The numbers are those of a layer table that gives full layers a window; here the table is right.
    """

    def __init__(self, inner: Attention, window_left: int) -> None:
        super().__init__(inner)
        self._window_left = window_left

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Attend with the window."""
        if call.group is KVGroup.FULL:
            near = seen_from(call, lambda request: request.span.start - self._window_left)
            call = replace(near, window_left=self._window_left)
        return super().attend(call)


class ChunkAlone(AttentionWrapper):
    """A cache that is appended a window or more keeps the new rows alone, before they are read."""

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Let a chunk that is as long as the window see nothing but itself in sliding layers."""
        if call.window_left is None:
            return super().attend(call)
        window = call.window_left + 1
        return super().attend(
            seen_from(
                call,
                lambda request: request.span.start if request.span.rows >= window else 0,
            )
        )


class MaskWithoutOffset(AttentionWrapper):
    """The mask of a chunk that continues is that of a chunk that begins: query i sees keys 0 to i.

    The first of all keys, those of the prefix, not the first of the chunk.
    """

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Attend to as many keys as the chunk has rows, the oldest."""
        out = super().attend(call)
        for request in call.requests:
            if _continues(request):
                rows = request.span.rows
                oldest = call.slots[request.entries][:rows]
                first = request.visible_start
                as_if = replace(request.span, start=first, end=first + rows)
                own = call.k_cache[oldest], call.v_cache[oldest]
                shifted = part(call, as_if, rows=request.rows, slots=oldest, own=own)
                out[request.rows] = super().attend(shifted)
        return out


class WindowDroppedOnContinuation(AttentionWrapper):
    """A chunk's mask does not fit the keys of its prefix, and is dropped: no window is left."""

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Attend to all keys that a chunk that continues is given."""
        out = super().attend(call)
        for request in call.requests:
            if _continues(request):
                slots = call.slots[request.entries]
                alone = part(call, request.span, rows=request.rows, slots=slots)
                out[request.rows] = super().attend(replace(alone, window_left=None))
        return out


class RerouteBeyondWindow(AttentionWrapper):
    """Beyond the window a chunk goes to the kernel of decoded tokens, row after row.

    Who calls that kernel has to cut the keys to the window; here nobody does.
    """

    def __init__(self, inner: Attention, windows: dict[int, int]) -> None:
        super().__init__(inner)
        self._windows = windows  # of sliding layers, in tokens

    def route(self, span: Span, layer: int) -> int:
        """Return the code of what a decoded token takes, beyond the window."""
        rerouted = span.end > self._windows.get(layer, span.end)
        return super().route(replace(span, phase=Phase.DECODE) if rerouted else span, layer)

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Compute the rows of a long prompt one by one."""
        out = super().attend(call)
        for request in call.requests:
            span = request.span
            if span.phase is Phase.PREFILL and span.end > self._windows.get(call.layer, span.end):
                for row in range(span.rows):
                    out[request.rows.start + row] = super().attend(_decoded(call, request, row))[0]
        return out


def _continues(request: Request) -> bool:
    return request.span.phase is Phase.PREFILL and request.span.start > 0


def _decoded(call: AttentionCall, request: Request, row: int) -> AttentionCall:
    """Return the call that computes one row of a chunk as a decoded token, over all keys before."""
    span, at = request.span, request.rows.start + row
    position = span.start + row
    slots = call.slots[request.entries][: position + 1 - request.visible_start]
    token = replace(span, start=position, end=position + 1, phase=Phase.DECODE)
    return replace(part(call, token, rows=slice(at, at + 1), slots=slots), window_left=None)


def _on_all(parts: StageParts) -> StageParts:
    window_left = parts.allocator.window_left
    if window_left is None:
        return parts
    return replace(parts, attention=WindowOfGroupOnAll(parts.attention, window_left))


def _reroute(parts: StageParts) -> StageParts:
    windows = {
        place.layer: place.window_left + 1
        for place in parts.layers.places()
        if place.window_left is not None
    }
    return replace(parts, attention=RerouteBeyondWindow(parts.attention, windows))


def _register(name: str, mechanism: str, summary: str, wrap: PartWrapper) -> None:
    register(name, mechanism, summary, part="attention", effect=Effect.DIVERGES, wrap=wrap)


_register(
    "window-one-too-large-in-prefill",
    "B2",
    "a chunk's queries see one key too many, a decoded token sees the right ones",
    on_attention(OneKeyTooManyInPrefill),
)
_register(
    "window-never-set",
    "B3",
    "the window never reaches the backend: queries of sliding layers see all keys they are given",
    on_attention(WindowNeverSet),
)
_register(
    "window-of-group-on-all",
    "B5",
    "the window that the backend has is used in full layers too; tables and rope are right",
    _on_all,
)
_register(
    "append-keeps-chunk-alone",
    "C2",
    "a chunk of a window or more is all that the cache keeps: its first rows lose their window",
    on_attention(ChunkAlone),
)
_register(
    "mask-without-offset",
    "C4",
    "the mask of a chunk that continues has no offset: its queries see the oldest keys",
    on_attention(MaskWithoutOffset),
)
_register(
    "window-dropped-on-continuation",
    "C4",
    "a chunk that continues is masked without the window",
    on_attention(WindowDroppedOnContinuation),
)
_register(
    "prefill-rerouted-beyond-window",
    "C5",
    "a prompt longer than the window is routed to another kernel, which does not know the window",
    _reroute,
)
