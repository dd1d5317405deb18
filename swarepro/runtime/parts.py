"""The seams of a stage: what a fault or an intervention may wrap, and nothing else.

The runtime calls the parts it is given and cannot ask what they are made of.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import torch

from swarepro.checkpoint.config import RopeSpec
from swarepro.kvcache import KVGroup, PageAllocator, SessionTable
from swarepro.plan import Phase, Span
from swarepro.points import CapturePoint


class Allocator(Protocol):
    """Owner of a stage's slots; `swarepro.kvcache.SlotLifecycle` is the real one.

    Everything that it hands out lies in the attributes, for those who keep its books: the runtime
    uses the methods alone.
    """

    @property
    def page_size(self) -> int:
        """Slots of a page of either pool."""

    @property
    def window_left(self) -> int | None:
        """Keys that a query sees to its left in sliding layers; None without them."""

    @property
    def full(self) -> PageAllocator:
        """The full pool's pages."""

    @property
    def swa(self) -> PageAllocator | None:
        """The SWA pool's pages; None without sliding layers."""

    @property
    def mapping(self) -> torch.Tensor:
        """``[full slots]`` int64: SWA slot by full slot, 0 = no live slot."""

    @property
    def tables(self) -> dict[int, SessionTable]:
        """The block tables of the sessions that own slots."""

    def check(self, spans: Sequence[Span]) -> None:
        """Raise what `ensure` would raise; change nothing."""
        ...

    def ensure(self, spans: Sequence[Span]) -> None:
        """Make all positions up to each span's end own slots; called before metadata is built."""
        ...

    def full_slots(self, session: int, end: int) -> torch.Tensor:
        """Return the full slots ``[end]`` of positions ``[0, end)``."""
        ...

    def translate(self, full_slots: torch.Tensor) -> torch.Tensor:
        """Return the SWA slots of full slots ``[C]``."""
        ...

    def evict(self, session: int, before: int) -> None:
        """Free SWA slots below ``before``, the first position that the next query can see."""
        ...

    def finish(self, session: int, *, keep: bool) -> None:
        """End a session: free its slots, or keep them for reuse."""
        ...

    def check_reuse(self, session: int, of: int, rows: int) -> None:
        """Raise what `reuse` would raise; change nothing."""
        ...

    def reuse(self, session: int, of: int, rows: int) -> None:
        """Let ``session`` own the first ``rows`` positions of the kept session ``of``."""
        ...

    def reset(self) -> None:
        """Forget every session; called after the pools were cleared."""
        ...


class Metadata(Protocol):
    """Says at which positions a span's rows are."""

    def positions(self, span: Span) -> torch.Tensor:
        """Return the position ids ``[T]`` int64, on the CPU, that rotate the span's rows."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPlace:
    """Where a layer of a stage finds what is its own.

    Attributes:
        layer: global layer id.
        config_layer: global id of the layer whose shapes and rope it has: its own.
        group: whose pool holds its keys and values.
        pool_layer: its index in that pool.
        window_left: keys that its queries see to their left; None = all.
    """

    layer: int
    config_layer: int
    group: KVGroup
    pool_layer: int
    window_left: int | None


class Layers(Protocol):
    """The layer table of a stage."""

    def places(self) -> tuple[LayerPlace, ...]:
        """Return the places of the stage's layers, in execution order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreContext:
    """Which store of a run this is.

    Attributes:
        step: of the run.
        layer: global layer id.
        group: whose pool it writes.
        pool_layer: index in that pool.
        spans: whose rows they are, in the order of the rows.
    """

    step: int
    layer: int
    group: KVGroup
    pool_layer: int
    spans: tuple[Span, ...]


class Schedule(Protocol):
    """The order in which the concurrent program instances of a launch take effect."""

    def order(self, num_programs: int, *key: int) -> torch.Tensor | None:
        """Return a permutation ``[num_programs]`` int64 of the instance ids; None = 0, 1, 2, ...

        ``key`` says which launch it is: the same key gives the same permutation.
        """
        ...


class Store(Protocol):
    """Writes a chunk's rows of K and V into a pool layer."""

    def store(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        slots: torch.Tensor,
        context: StoreContext,
    ) -> None:
        """Write rows ``k, v [T, K, D]`` at ``slots [T]`` of ``k_cache, v_cache [S, K, D]``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One session's part of an attention call.

    Attributes:
        span: its positions in this step.
        rows: which rows of q, k and v are its own.
        entries: which entries of ``slots`` are its own: the slots of positions
            ``[visible_start, span.end)``.
        visible_start: first position that one of its queries can see.
    """

    span: Span
    rows: slice
    entries: slice
    visible_start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCall:
    """Everything that one attention call sees.

    Attributes:
        step: of the run.
        layer: global layer id.
        group: whose pool it reads.
        pool_layer: index in that pool.
        requests: what is computed, in the order of the rows.
        batch: spans of the whole step, those of its other calls among them: what an engine may
            choose a kernel by.
        q: ``[T, H, D]``.
        k: ``[T, K, D]``, the step's own keys.
        v: ``[T, K, D]``.
        k_cache: ``[S, K, D]``.
        v_cache: ``[S, K, D]``.
        slots: ``[N]`` int64: for each request the slots of the positions that its queries can see,
            its own rows last.
        window_left: keys visible to the left of a query; None = all.
        ahead: ``[T]`` int64: keys visible to the right of each query; None = none.
        scale: factor of the scores.
        softcap: on the scores, or None.
        out: ``[T, H, D]``, q's dtype; scratch memory that the call fills, wholly.
        scratch: where the call takes further memory from.
    """

    step: int
    layer: int
    group: KVGroup
    pool_layer: int
    requests: tuple[Request, ...]
    batch: tuple[Span, ...]
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    slots: torch.Tensor
    window_left: int | None
    ahead: torch.Tensor | None
    scale: float
    softcap: float | None
    out: torch.Tensor
    scratch: "Scratch"


class Attention(Protocol):
    """An attention implementation: a route."""

    def route(self, span: Span, layer: int) -> int:
        """Return the code of the implementation that a span takes; see `runtime.routes`."""
        ...

    def reads_own_rows(self, phase: Phase) -> bool:
        """Return whether a span's own keys and values are read back from the pool."""
        ...

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Fill ``call.out`` and return it."""
        ...


class ScratchUse(StrEnum):
    """What scratch memory is for."""

    OUTPUT = "output"  # of an attention call
    PARTIAL = "partial"  # results of a decoded token's shares of its keys, before they are combined


class Scratch(Protocol):
    """Memory that an operation has to fill before it is read."""

    def take(
        self, shape: tuple[int, ...], use: ScratchUse, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """Return a tensor on the run's device that holds anything; None = the run's dtype."""
        ...


class Ops(Protocol):
    """The row-wise operations, those of a layer each as in `swarepro_kernels.reference`."""

    def embed(self, ids: torch.Tensor, weight: torch.Tensor, *, scale: float) -> torch.Tensor:
        """Return rows ``ids [T]`` of ``weight [V, E]`` times ``scale``, rounded to its dtype."""
        ...

    def rotary_frequencies(self, rope: RopeSpec, head_dim: int) -> torch.Tensor:
        """Return the angles of one position, ``[head_dim / 2]`` float32 on the CPU."""
        ...

    def rms_norm(
        self,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        *,
        eps: float,
        adds_one: bool,
        residual: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Normalise the last dimension; with ``residual``, x's shape, return its sum with that."""
        ...

    def rope(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Rotate ``x [T, H, D]`` by ``cos, sin [T, D / 2]``."""
        ...

    def gelu_tanh_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """Map ``[T, 2 F]`` to ``[T, F]``."""
        ...

    def softcap(self, x: torch.Tensor, cap: float) -> torch.Tensor:
        """Squash ``x`` into ``(-cap, cap)``."""
        ...

    def linear(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Map ``[T, N]`` by ``weight [M, N]`` to ``[T, M]``."""
        ...

    def unembed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Map normed ``x [T, E]`` by the head ``weight [V, E]`` to logits ``[T, V]``."""
        ...

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the token ids ``[T]`` int64 that ``logits [T, V]`` choose: of ties the first."""
        ...


class Edge(Protocol):
    """What crosses from one stage to the next: one plane, the residual stream."""

    def send(self, hidden: torch.Tensor, entered: torch.Tensor) -> torch.Tensor:
        """Return what a stage sends ``[T, E]``.

        Args:
            hidden: ``[T, E]``, the stream after the stage's last layer.
            entered: ``[T, E]``, the stream as it came into that layer.
        """
        ...

    def receive(self, sent: torch.Tensor) -> torch.Tensor:
        """Return the stream ``[T, E]`` that a stage's first layer gets of what was sent."""
        ...


class Tap(Protocol):
    """Receives boundary tensors while they are live; it copies what it keeps."""

    def wants(self, point: CapturePoint, layer: int | None = None) -> bool:
        """Return whether ``point`` is captured; a tensor made only for it can be left out."""
        ...

    def __call__(
        self,
        point: CapturePoint,
        tensor: torch.Tensor,
        layer: int | None = None,
        *,
        session: int,
        row_start: int | None = None,
    ) -> None:
        """Capture ``tensor`` of ``session``; ``row_start``: logical position of row 0, or None."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StageParts:
    """The parts of one stage.

    `schedule` is what orders the launches of all of them; a wrapper of another part may read it.
    """

    allocator: Allocator
    metadata: Metadata
    layers: Layers
    attention: Attention
    store: Store
    ops: Ops
    edge: Edge
    scratch: Scratch
    tap: Tap
    schedule: Schedule


PartWrapper = Callable[[StageParts], StageParts]
"""Returns the parts with exactly one of them wrapped."""
