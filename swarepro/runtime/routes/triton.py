"""The Triton routes: split (the chunk's own keys from the chunk) and paged (all from the pool).

Import this module only when the process's Triton mode was chosen, see `swarepro.backend`.
"""

from itertools import groupby

import torch

import swarepro_kernels as kernels
from swarepro.checkpoint.config import RopeSpec
from swarepro.plan import Phase, Span
from swarepro.runtime.parts import AttentionCall, Request, Schedule, ScratchUse, StoreContext
from swarepro.runtime.rotary import inverse_frequencies
from swarepro.runtime.routes.embedding import scaled_embedding
from swarepro.runtime.routes.orders import LaunchOrders, store_order
from swarepro.runtime.routes.sampling import first_largest
from swarepro.runtime.routes.table import ROUTE_CODES
from swarepro_kernels.paged_decode import DecodeScratch, num_decode_splits


class TritonSplitAttention:
    """Split attention for a chunk, split-KV attention for one decoded token."""

    def __init__(self, orders: LaunchOrders) -> None:
        self._orders = orders

    def route(self, span: Span, layer: int) -> int:
        """Return the code of the implementation for the span's phase."""
        name = "triton-split-decode" if span.phase is Phase.DECODE else "triton-split-prefill"
        return ROUTE_CODES[name]

    def reads_own_rows(self, phase: Phase) -> bool:
        """Only a decoded token does; a chunk attends to its keys as they were computed."""
        return phase is Phase.DECODE

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Fill ``call.out``: one launch for each chunk, one for decoded tokens in a row."""
        for phase, neighbours in groupby(call.requests, key=lambda request: request.span.phase):
            requests = tuple(neighbours)
            if phase is Phase.DECODE:
                self._decode(call, requests)
            else:
                for request in requests:
                    self._prefill(call, request)
        return call.out

    def _decode(self, call: AttentionCall, requests: tuple[Request, ...]) -> None:
        rows, entries, _, ends = _together(requests, call.slots.device)
        q = call.q[rows]
        context = -(-call.slots[entries].shape[0] // len(requests))
        splits = num_decode_splits(context, call.k_cache.shape[1], len(requests))
        shape = (splits, *q.shape)
        kernels.paged_decode(
            q,
            call.k_cache,
            call.v_cache,
            call.slots[entries],
            scale=call.scale,
            softcap=call.softcap,
            kv_indptr=ends,
            num_splits=splits,
            scratch=DecodeScratch(
                partial=call.scratch.take(shape, ScratchUse.PARTIAL, torch.float32),
                lse=call.scratch.take(shape[:3], ScratchUse.PARTIAL, torch.float32),
            ),
            out=call.out[rows],
            order=self._orders.next(),
        )

    def _prefill(self, call: AttentionCall, request: Request) -> None:
        kernels.paged_prefill(
            call.q[request.rows],
            call.k[request.rows],
            call.v[request.rows],
            call.k_cache,
            call.v_cache,
            call.slots[request.entries][: -request.span.rows],
            window_left=call.window_left,
            scale=call.scale,
            softcap=call.softcap,
            ahead=None if call.ahead is None else call.ahead[request.rows],
            out=call.out[request.rows],
            order=self._orders.next(),
        )


class TritonPagedAttention:
    """One kernel for prefill and decode; it reads the step's own keys back from the pool, too."""

    def __init__(self, orders: LaunchOrders) -> None:
        self._orders = orders

    def route(self, span: Span, layer: int) -> int:
        """Return the code of the implementation."""
        return ROUTE_CODES["triton-paged"]

    def reads_own_rows(self, phase: Phase) -> bool:
        """Everything is read from the pool."""
        return True

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Fill ``call.out`` in one launch."""
        _, _, query_indptr, kv_indptr = _together(call.requests, call.slots.device)
        return kernels.paged_attention(
            call.q,
            call.k_cache,
            call.v_cache,
            call.slots,
            query_indptr=query_indptr,
            kv_indptr=kv_indptr,
            window_left=call.window_left,
            scale=call.scale,
            softcap=call.softcap,
            ahead=call.ahead,
            out=call.out,
            order=self._orders.next(),
        )


def _together(
    requests: tuple[Request, ...], device: torch.device
) -> tuple[slice, slice, torch.Tensor, torch.Tensor]:
    """Return rows and entries of neighbours, and where each one's begin among them."""
    first, last = requests[0], requests[-1]
    bounds = []
    for starts, end in (
        ([request.rows.start for request in requests], last.rows.stop),
        ([request.entries.start for request in requests], last.entries.stop),
    ):
        bounds.append(torch.tensor([*starts, end]) - starts[0])
    return (
        slice(first.rows.start, last.rows.stop),
        slice(first.entries.start, last.entries.stop),
        bounds[0].to(device),
        bounds[1].to(device),
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

    def unembed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Multiply by the transposed head."""
        return torch.nn.functional.linear(x, weight)

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the largest, of ties the first."""
        return first_largest(logits)
