"""The eager route: the kernels' torch twins, on any device."""

import torch

from swarepro.checkpoint.config import RopeSpec
from swarepro.plan import Phase, Span
from swarepro.runtime.parts import AttentionCall, Request, Schedule, ScratchUse, StoreContext
from swarepro.runtime.rotary import inverse_frequencies
from swarepro.runtime.routes.embedding import scaled_embedding
from swarepro.runtime.routes.orders import store_order
from swarepro.runtime.routes.sampling import first_largest
from swarepro.runtime.routes.table import ROUTE_CODES
from swarepro_kernels import reference as kernels


class EagerAttention:
    """Split attention for a chunk, paged attention for one decoded token."""

    def route(self, span: Span, layer: int) -> int:
        """Return the code of the implementation for the span's phase."""
        return ROUTE_CODES["eager-decode" if span.phase is Phase.DECODE else "eager-prefill"]

    def reads_own_rows(self, phase: Phase) -> bool:
        """Only a decoded token does; a chunk attends to its keys as they were computed."""
        return phase is Phase.DECODE

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Fill ``call.out``, request after request."""
        for request in call.requests:
            call.out[request.rows] = self._one(call, request)
        return call.out

    def _one(self, call: AttentionCall, request: Request) -> torch.Tensor:
        slots, q = call.slots[request.entries], call.q[request.rows]
        if request.span.phase is Phase.DECODE:
            # One share of the keys, whose result goes through the memory of partial results.
            partial = call.scratch.take(tuple(q.shape), ScratchUse.PARTIAL)
            partial[:] = kernels.paged_decode(
                q, call.k_cache, call.v_cache, slots, scale=call.scale, softcap=call.softcap
            )
            return partial
        return kernels.paged_prefill(
            q,
            call.k[request.rows],
            call.v[request.rows],
            call.k_cache,
            call.v_cache,
            slots[: -request.span.rows],
            window_left=call.window_left,
            ahead=_ahead(call, request),
            scale=call.scale,
            softcap=call.softcap,
        )


class EagerPagedAttention:
    """Paged attention for chunks and decoded tokens: a span's own keys are read back, too."""

    def route(self, span: Span, layer: int) -> int:
        """Return the code of the implementation."""
        return ROUTE_CODES["eager-paged"]

    def reads_own_rows(self, phase: Phase) -> bool:
        """Everything is read from the pool."""
        return True

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Fill ``call.out``, request after request."""
        for request in call.requests:
            slots = call.slots[request.entries]
            call.out[request.rows] = kernels.paged_attention(
                call.q[request.rows],
                call.k_cache,
                call.v_cache,
                slots,
                query_indptr=torch.tensor([0, request.span.rows]),
                kv_indptr=torch.tensor([0, slots.shape[0]]),
                window_left=call.window_left,
                ahead=_ahead(call, request),
                scale=call.scale,
                softcap=call.softcap,
            )
        return call.out


def _ahead(call: AttentionCall, request: Request) -> torch.Tensor | None:
    return None if call.ahead is None else call.ahead[request.rows]


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

    def embed(self, ids: torch.Tensor, weight: torch.Tensor, *, scale: float) -> torch.Tensor:
        """Return rows of ``weight``, scaled."""
        return scaled_embedding(ids, weight, scale)

    def rotary_frequencies(self, rope: RopeSpec, head_dim: int) -> torch.Tensor:
        """Return the angles of one position."""
        return inverse_frequencies(rope, head_dim)

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

    def unembed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Multiply by the transposed head."""
        return torch.nn.functional.linear(x, weight)

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the largest, of ties the first."""
        return first_largest(logits)
