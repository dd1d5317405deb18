"""The Triton routes: split (the chunk's own keys from the chunk) and paged (all from the pool).

Import this module only when the process's Triton mode was chosen, see `swarepro.backend`.
"""

import torch

import swarepro_kernels as kernels
from swarepro.plan import Phase
from swarepro.runtime.parts import AttentionCall, Schedule, StoreContext
from swarepro.runtime.routes.orders import LaunchOrders, store_order
from swarepro.runtime.routes.table import ROUTE_CODES


class TritonSplitAttention:
    """Split attention for a chunk, split-KV attention for one decoded token."""

    def __init__(self, orders: LaunchOrders) -> None:
        self._orders = orders

    def route(self, phase: Phase, layer: int) -> int:
        """Return the code of the implementation for ``phase``."""
        name = "triton-split-decode" if phase is Phase.DECODE else "triton-split-prefill"
        return ROUTE_CODES[name]

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
                order=self._orders.next(),
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
            order=self._orders.next(),
        )


class TritonPagedAttention:
    """One kernel for prefill and decode; it reads the step's own keys back from the pool, too."""

    def __init__(self, orders: LaunchOrders) -> None:
        self._orders = orders

    def route(self, phase: Phase, layer: int) -> int:
        """Return the code of the implementation."""
        return ROUTE_CODES["triton-paged"]

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Return ``[T, H, D]``."""
        ends = torch.arange(2, device=call.slots.device)  # one request: [0, n], without a copy
        return kernels.paged_attention(
            call.q,
            call.k_cache,
            call.v_cache,
            call.slots,
            query_indptr=ends * call.q.shape[0],
            kv_indptr=ends * call.slots.shape[0],
            window_left=call.window_left,
            scale=call.scale,
            softcap=call.softcap,
            order=self._orders.next(),
        )


class TritonStore:
    """The store kernel, under a schedule."""

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
        """Write the rows; in the interpreter in the schedule's order."""
        order = store_order(self._schedule, context)
        kernels.store_kv(k, v, k_cache, v_cache, slots, order=order)


class TritonOps:
    """Row-wise kernels; matrix products are torch's on every route."""

    def __init__(self, orders: LaunchOrders) -> None:
        self._orders = orders

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
        return kernels.rms_norm(
            x, weight, eps=eps, adds_one=adds_one, residual=residual, order=self._orders.next()
        )

    def rope(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Rotate ``x [T, H, D]``."""
        return kernels.rope(x, cos, sin, order=self._orders.next())

    def gelu_tanh_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """Map ``[T, 2 F]`` to ``[T, F]``."""
        return kernels.gelu_tanh_mul(gate_up, order=self._orders.next())

    def softcap(self, x: torch.Tensor, cap: float) -> torch.Tensor:
        """Squash ``x``."""
        return kernels.softcap(x, cap, order=self._orders.next())

    def linear(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Multiply by the transposed weight."""
        return torch.nn.functional.linear(x, weight)
