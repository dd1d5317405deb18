"""The seams of a stage: what a fault or an intervention may wrap, and nothing else.

The runtime calls the parts it is given and cannot ask what they are made of.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from swarepro.kvcache import SlotAllocator
from swarepro.plan import Phase
from swarepro.points import CapturePoint


class Allocator(Protocol):
    """Owner of a stage's SWA slots; `swarepro.kvcache.SwaSession` is the real one."""

    @property
    def full_slots(self) -> torch.Tensor:
        """``[capacity]`` int64: full slot of each position."""

    @property
    def mapping(self) -> torch.Tensor:
        """``[capacity + 1]`` int64: SWA slot by full slot, 0 = no live slot."""

    @property
    def allocator(self) -> SlotAllocator:
        """The free list."""

    @property
    def allocated(self) -> int:
        """Positions below it own slots."""

    def ensure(self, start: int, count: int) -> None:
        """Make positions ``[0, start + count)`` own slots; called before metadata is built."""
        ...

    def translate(self, full_slots: torch.Tensor) -> torch.Tensor:
        """Return the SWA slots of full slots ``[C]``."""
        ...

    def reset(self) -> None:
        """Forget the session; called after the pools were zeroed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreContext:
    """Which store of a run this is."""

    session: int
    step: int
    layer: int


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
class AttentionCall:
    """Everything that one attention call sees.

    Attributes:
        phase: prefill, or decode with one row.
        layer: global layer id.
        q: ``[T, H, D]``.
        k: ``[T, K, D]``, the step's own keys.
        v: ``[T, K, D]``.
        k_cache: ``[S, K, D]``.
        v_cache: ``[S, K, D]``.
        slots: ``[C]`` int64: slots of the positions that the step's queries can see, its own T
            last.
        window_left: keys visible to the left of a query; None = all.
        scale: factor of the scores.
        softcap: on the scores, or None.
    """

    phase: Phase
    layer: int
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    slots: torch.Tensor
    window_left: int | None
    scale: float
    softcap: float | None


class Attention(Protocol):
    """An attention implementation: a route."""

    def route(self, phase: Phase, layer: int) -> int:
        """Return the code of the implementation that a call will take; see `runtime.routes`."""
        ...

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Return ``[T, H, D]`` in q's dtype."""
        ...


class Ops(Protocol):
    """The row-wise operations of a layer, each as in `swarepro_kernels.reference`."""

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
        row_start: int | None = None,
    ) -> None:
        """Capture ``tensor``; ``row_start``: logical position of row 0, or None."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StageParts:
    """The parts of one stage. ``allocator`` is None in a stage without sliding layers."""

    allocator: Allocator | None
    attention: Attention
    store: Store
    ops: Ops
    tap: Tap


PartWrapper = Callable[[StageParts], StageParts]
"""Returns the parts with exactly one of them wrapped."""
