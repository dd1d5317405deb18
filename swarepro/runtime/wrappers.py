"""Wrappers of parts that pass everything on; who wraps a part overrides what it changes."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from swarepro.checkpoint.config import RopeSpec
from swarepro.kvcache import PageAllocator, SessionTable, slots_of
from swarepro.plan import Phase, Span
from swarepro.points import CapturePoint
from swarepro.runtime.parts import (
    Allocator,
    Attention,
    AttentionCall,
    Edge,
    Layers,
    Metadata,
    Ops,
    PartWrapper,
    Scratch,
    ScratchUse,
    StageParts,
    Store,
    Tap,
)


class AllocatorWrapper:
    """An allocator that does what the wrapped one does."""

    def __init__(self, inner: Allocator) -> None:
        self._inner = inner

    @property
    def page_size(self) -> int:
        """As the wrapped allocator's."""
        return self._inner.page_size

    @property
    def window_left(self) -> int | None:
        """As the wrapped allocator's."""
        return self._inner.window_left

    @property
    def full(self) -> PageAllocator:
        """As the wrapped allocator's."""
        return self._inner.full

    @property
    def swa(self) -> PageAllocator | None:
        """As the wrapped allocator's."""
        return self._inner.swa

    @property
    def mapping(self) -> torch.Tensor:
        """As the wrapped allocator's."""
        return self._inner.mapping

    @property
    def tables(self) -> dict[int, SessionTable]:
        """As the wrapped allocator's."""
        return self._inner.tables

    def check(self, spans: Sequence[Span]) -> None:
        """As the wrapped allocator."""
        self._inner.check(spans)

    def ensure(self, spans: Sequence[Span]) -> None:
        """As the wrapped allocator."""
        self._inner.ensure(spans)

    def full_slots(self, session: int, end: int) -> torch.Tensor:
        """As the wrapped allocator."""
        return self._inner.full_slots(session, end)

    def translate(self, full_slots: torch.Tensor) -> torch.Tensor:
        """As the wrapped allocator."""
        return self._inner.translate(full_slots)

    def evict(self, session: int, before: int) -> None:
        """As the wrapped allocator."""
        self._inner.evict(session, before)

    def finish(self, session: int, *, keep: bool) -> None:
        """As the wrapped allocator."""
        self._inner.finish(session, keep=keep)

    def check_reuse(self, session: int, of: int, rows: int) -> None:
        """As the wrapped allocator."""
        self._inner.check_reuse(session, of, rows)

    def reuse(self, session: int, of: int, rows: int) -> None:
        """As the wrapped allocator."""
        self._inner.reuse(session, of, rows)

    def reset(self) -> None:
        """As the wrapped allocator."""
        self._inner.reset()

    def num_pages(self, session: int) -> int:
        """Return how many full pages a session owns."""
        table = self.tables.get(session)
        return 0 if table is None else table.pages.numel()

    def owned(self, session: int) -> torch.Tensor:
        """Return the full slots of a session's pages, the unused rest of the last one included."""
        table = self.tables.get(session)
        pages = torch.empty(0, dtype=torch.int64) if table is None else table.pages
        return slots_of(pages, self.page_size)

    def ensured(self, spans: Sequence[Span]) -> torch.Tensor:
        """Let the wrapped allocator `ensure`, and return the full slots that this handed out."""
        before = {span.session: self.owned(span.session).numel() for span in spans}
        self._inner.ensure(spans)
        return torch.cat([self.owned(session)[had:] for session, had in before.items()])

    def give_back(self, full_slots: torch.Tensor, swa_slots: torch.Tensor) -> None:
        """Map ``full_slots`` to ``swa_slots`` instead; the SWA pages that they had are free again.

        Both ``[N]`` int64, whole pages. The pages come to the front of the free list, as if they
        had never been handed out.

        Raises:
            ValueError: ``full_slots`` are not whole pages; nothing has changed.
        """
        if self.swa is None:
            return
        first = full_slots[:: self.page_size] // self.page_size
        if not torch.equal(full_slots, slots_of(first, self.page_size)):
            raise ValueError(
                f"slots {full_slots.tolist()} are not whole pages of {self.page_size}: SWA pages"
                " can be given back only whole"
            )
        pages = self.mapping[first * self.page_size] // self.page_size
        self.swa.free_list = torch.cat([pages, self.swa.free_list])
        self.mapping[full_slots] = swa_slots


class MetadataWrapper:
    """Metadata that is what the wrapped part says, shifted."""

    def __init__(self, inner: Metadata, start: Callable[[Span], int]) -> None:
        self._inner = inner
        self._start = start

    def positions(self, span: Span) -> torch.Tensor:
        """Return the wrapped part's positions, moved to begin elsewhere."""
        return self._inner.positions(span) - span.start + self._start(span)


class AttentionWrapper:
    """Attention that does what the wrapped one does."""

    def __init__(self, inner: Attention) -> None:
        self._inner = inner

    def route(self, span: Span, layer: int) -> int:
        """As the wrapped attention."""
        return self._inner.route(span, layer)

    def reads_own_rows(self, phase: Phase) -> bool:
        """As the wrapped attention."""
        return self._inner.reads_own_rows(phase)

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """As the wrapped attention."""
        return self._inner.attend(call)


class OpsWrapper:
    """Row-wise operations that are the wrapped ones."""

    def __init__(self, inner: Ops) -> None:
        self._inner = inner

    def embed(self, ids: torch.Tensor, weight: torch.Tensor, *, scale: float) -> torch.Tensor:
        """As the wrapped operation."""
        return self._inner.embed(ids, weight, scale=scale)

    def rotary_frequencies(self, rope: RopeSpec, head_dim: int) -> torch.Tensor:
        """As the wrapped operation."""
        return self._inner.rotary_frequencies(rope, head_dim)

    def rms_norm(
        self,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        *,
        eps: float,
        adds_one: bool,
        residual: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """As the wrapped operation."""
        return self._inner.rms_norm(x, weight, eps=eps, adds_one=adds_one, residual=residual)

    def rope(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """As the wrapped operation."""
        return self._inner.rope(x, cos, sin)

    def gelu_tanh_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """As the wrapped operation."""
        return self._inner.gelu_tanh_mul(gate_up)

    def softcap(self, x: torch.Tensor, cap: float) -> torch.Tensor:
        """As the wrapped operation."""
        return self._inner.softcap(x, cap)

    def linear(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """As the wrapped operation."""
        return self._inner.linear(x, weight)

    def unembed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """As the wrapped operation."""
        return self._inner.unembed(x, weight)

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """As the wrapped operation."""
        return self._inner.choose(logits)


class EdgeWrapper:
    """An edge that sends and receives what the wrapped one does."""

    def __init__(self, inner: Edge) -> None:
        self._inner = inner

    def send(self, hidden: torch.Tensor, entered: torch.Tensor) -> torch.Tensor:
        """As the wrapped edge."""
        return self._inner.send(hidden, entered)

    def receive(self, sent: torch.Tensor) -> torch.Tensor:
        """As the wrapped edge."""
        return self._inner.receive(sent)


class ScratchWrapper:
    """Scratch that does what the wrapped one does."""

    def __init__(self, inner: Scratch) -> None:
        self._inner = inner

    def take(
        self, shape: tuple[int, ...], use: ScratchUse, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """As the wrapped scratch."""
        return self._inner.take(shape, use, dtype)


class TapWrapper:
    """A tap that captures what the wrapped one does."""

    def __init__(self, inner: Tap) -> None:
        self._inner = inner

    def wants(self, point: CapturePoint, layer: int | None = None) -> bool:
        """As the wrapped tap."""
        return self._inner.wants(point, layer)

    def __call__(
        self,
        point: CapturePoint,
        tensor: torch.Tensor,
        layer: int | None = None,
        *,
        session: int,
        row_start: int | None = None,
    ) -> None:
        """As the wrapped tap."""
        self._inner(point, tensor, layer, session=session, row_start=row_start)


def on_tap(wrapper: Callable[[Tap], Tap]) -> PartWrapper:
    """Wrap the tap of every stage; the token, which lies after the stages, is not seen by it."""
    return lambda parts: replace(parts, tap=wrapper(parts.tap))


def on_scratch(wrapper: Callable[[Scratch], Scratch]) -> PartWrapper:
    """Wrap the scratch of every stage."""
    return lambda parts: replace(parts, scratch=wrapper(parts.scratch))


def on_allocator(wrapper: Callable[[Allocator], Allocator]) -> PartWrapper:
    """Wrap the allocator of every stage that has sliding layers."""

    def wrap(parts: StageParts) -> StageParts:
        if parts.allocator.swa is None:
            return parts
        return replace(parts, allocator=wrapper(parts.allocator))

    return wrap


def on_every_allocator(wrapper: Callable[[Allocator], Allocator]) -> PartWrapper:
    """Wrap the allocator of every stage, also of one that has a full pool alone."""
    return lambda parts: replace(parts, allocator=wrapper(parts.allocator))


def on_metadata(start: Callable[[Span, int | None], int]) -> PartWrapper:
    """Let positions begin at ``start(span, window_left)``."""

    def wrap(parts: StageParts) -> StageParts:
        window_left = parts.allocator.window_left
        metadata = MetadataWrapper(parts.metadata, lambda span: start(span, window_left))
        return replace(parts, metadata=metadata)

    return wrap


def on_attention(wrapper: Callable[[Attention], Attention]) -> PartWrapper:
    """Wrap the attention of every stage."""
    return lambda parts: replace(parts, attention=wrapper(parts.attention))


def on_ops(wrapper: Callable[[Ops], Ops]) -> PartWrapper:
    """Wrap the row-wise operations of every stage."""
    return lambda parts: replace(parts, ops=wrapper(parts.ops))


def on_edge(wrapper: Callable[[Edge], Edge]) -> PartWrapper:
    """Wrap the edge of every stage."""
    return lambda parts: replace(parts, edge=wrapper(parts.edge))


def on_store(wrapper: Callable[[Store], Store]) -> PartWrapper:
    """Wrap the store of every stage."""
    return lambda parts: replace(parts, store=wrapper(parts.store))


def on_layers(wrapper: Callable[[Layers], Layers]) -> PartWrapper:
    """Wrap the layer table of every stage."""
    return lambda parts: replace(parts, layers=wrapper(parts.layers))
