"""The eager route: the kernels' torch twins, on any device."""

import torch

from swarepro.plan import Phase
from swarepro.runtime.parts import AttentionCall, Schedule, StoreContext
from swarepro.runtime.routes.orders import store_order
from swarepro.runtime.routes.table import ROUTE_CODES
from swarepro_kernels import reference as kernels


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
        kernels.store_kv(
            k,
            v,
            k_cache,
            v_cache,
            slots,
            order=store_order(self._schedule, context),
        )


class EagerOps:
    """Row-wise operations."""

    def rms_norm(
        self,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        *,
        eps: float,
        adds_one: bool,
        residual: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Normalise the last dimension; add ``residual`` where it is given."""
        return kernels.rms_norm(x, weight, eps=eps, adds_one=adds_one, residual=residual)

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
