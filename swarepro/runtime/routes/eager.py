"""The eager route: the kernels' torch twins, on any device."""

import torch

import swarepro_kernels as kernels
from swarepro.plan import Phase
from swarepro.runtime.parts import AttentionCall, Schedule, StoreContext
from swarepro.runtime.routes.table import ROUTE_CODES


class EagerAttention:
    """Split attention for a chunk, paged attention for one decoded token."""

    def route(self, phase: Phase, layer: int) -> int:
        """Return the code of the implementation for ``phase``."""
        return ROUTE_CODES["eager-decode" if phase is Phase.DECODE else "eager-prefill"]

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Return ``[T, H, D]``."""
        if call.phase is Phase.DECODE:
            return kernels.paged_decode(
                call.q,
                call.k_cache,
                call.v_cache,
                call.slots,
                scale=call.scale,
                softcap=call.softcap,
            )
        prefix = call.slots.shape[0] - call.q.shape[0]
        return kernels.paged_prefill(
            call.q,
            call.k,
            call.v,
            call.k_cache,
            call.v_cache,
            call.slots[:prefix],
            window_left=call.window_left,
            scale=call.scale,
            softcap=call.softcap,
        )


class EagerStore:
    """The store, under a schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def store(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        slots: torch.Tensor,
        context: StoreContext,
    ) -> None:
        """Write the rows in the schedule's order."""
        order = self._schedule.order(k.shape[0] * k.shape[1] * 2, context)
        if order is not None:
            order = order.to(k.device)
        kernels.store_kv(k, v, k_cache, v_cache, slots, order=order)


class EagerOps:
    """Row-wise operations."""

    def rms_norm(
        self, x: torch.Tensor, weight: torch.Tensor | None, *, eps: float, adds_one: bool
    ) -> torch.Tensor:
        """Normalise the last dimension."""
        return kernels.rms_norm(x, weight, eps=eps, adds_one=adds_one)

    def rope(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Rotate ``x [T, H, D]``."""
        return kernels.rope(x, cos, sin)

    def gelu_tanh_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """Map ``[T, 2 F]`` to ``[T, F]``."""
        return kernels.gelu_tanh_mul(gate_up)

    def softcap(self, x: torch.Tensor, cap: float) -> torch.Tensor:
        """Squash ``x``."""
        return kernels.softcap(x, cap)

    def linear(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Multiply by the transposed weight."""
        return torch.nn.functional.linear(x, weight)
