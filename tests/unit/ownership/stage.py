"""A small stage that does with its parts what the runtime does, on real pools and a real lifecycle.

Layers 0 and 1 slide, layer 2 is full. The rows that it stores are drawn, one for each position.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from swarepro.errors import SlotRangeError
from swarepro.kvcache import HybridKVCache, KVGroup, KVGroupSpec
from swarepro.ownership import OwnershipShadow, Violation, ViolationLog, slot_accounts
from swarepro.plan import Phase, Span
from swarepro.runtime.parts import (
    AttentionCall,
    LayerPlace,
    PartWrapper,
    Request,
    StageParts,
    StoreContext,
)

WINDOW_LEFT = 7
LAYERS = {0: KVGroup.SLIDING, 1: KVGroup.SLIDING, 2: KVGroup.FULL}
GROUPS = tuple(
    KVGroupSpec(
        group=group,
        layer_ids=tuple(layer for layer, of in LAYERS.items() if of is group),
        num_kv_heads=1,
        head_dim=4,
        sliding_window=WINDOW_LEFT + 1 if group is KVGroup.SLIDING else None,
    )
    for group in (KVGroup.SLIDING, KVGroup.FULL)
)


def row_digests(rows: torch.Tensor) -> torch.Tensor:
    """Mix the bits of ``[N, 2, K, D]`` float32 rows into ``[N]`` int64."""
    bits = rows.contiguous().view(torch.int32).flatten(1).to(torch.int64)
    weights = 2 * torch.arange(bits.shape[1]) + 0x9E3779B1
    return (bits * weights).sum(dim=1)


class FakeMetadata:
    def positions(self, span):
        return torch.arange(span.start, span.end)


class FakeLayers:
    def places(self):
        return tuple(
            LayerPlace(
                layer=layer,
                config_layer=layer,
                group=group,
                pool_layer=[x for x in LAYERS if LAYERS[x] is group].index(layer),
                window_left=WINDOW_LEFT if group is KVGroup.SLIDING else None,
            )
            for layer, group in LAYERS.items()
        )


class FakeStore:
    def store(self, k, v, k_cache, v_cache, slots, context):
        k_cache[slots] = k
        v_cache[slots] = v


class FakeAttention:
    """Prefill reads its own rows from k and v, decode from the pool."""

    def route(self, span, layer):
        return 1

    def reads_own_rows(self, phase):
        return phase is Phase.DECODE

    def attend(self, call):
        return call.out


class SmallStage:
    """Runs steps on watched parts; ``wrap`` puts a fault inside the shadow."""

    def __init__(
        self,
        wrap: PartWrapper = lambda parts: parts,
        *,
        capacity: int = 32,
        swa_capacity: int = 32,
        page_size: int = 1,
        evict: bool = False,
        digests: Callable[[torch.Tensor], torch.Tensor] = row_digests,
        log: ViolationLog | None = None,
        stage: int = 0,
    ) -> None:
        self.cache = HybridKVCache(
            GROUPS,
            capacity=capacity,
            swa_capacity=swa_capacity,
            page_size=page_size,
            dtype=torch.float32,
            device=torch.device("cpu"),
        )
        self.log = log or ViolationLog()
        self.shadow = OwnershipShadow(
            self.log, stage=stage, pools=self.cache.pools, row_digests=digests
        )
        parts = StageParts(
            allocator=self.cache.lifecycle,
            metadata=FakeMetadata(),
            layers=FakeLayers(),
            attention=FakeAttention(),
            store=FakeStore(),
            ops=None,
            edge=None,
            scratch=None,
            tap=None,
            schedule=None,
        )
        self.parts = self.shadow.watch(wrap(parts))
        self.evict = evict
        self.places = self.parts.layers.places()
        self._step = 0

    @property
    def first(self) -> Violation:
        assert self.log.first is not None, "nothing was found"
        return self.log.first

    @property
    def kinds(self) -> list[str]:
        return [violation.kind for violation in self.log.violations]

    def run(self, *spans: tuple[int, int, int], phase: Phase = Phase.PREFILL) -> None:
        """Run one step over spans given as (session, start, end)."""
        self.log.begin_step(self._step)
        self.step(tuple(Span(session=s, start=a, end=b, phase=phase) for s, a, b in spans))

    def step(self, spans: Sequence[Span]) -> None:
        allocator = self.parts.allocator
        allocator.check(spans)
        allocator.ensure(spans)
        slots = [self._slots(span) for span in spans]
        for place in self.places:
            self._store(place, spans, slots)
            self._attend(place, spans, slots)
        if self.evict:
            for span in spans:
                allocator.evict(span.session, max(0, span.end - WINDOW_LEFT))
        self._step += 1

    def finish(self, session: int, *, keep: bool = False) -> None:
        self.log.begin_step(self._step)
        self.parts.allocator.finish(session, keep=keep)

    def reuse(self, session: int, of: int, rows: int) -> None:
        self.log.begin_step(self._step)
        self.parts.allocator.reuse(session, of, rows)

    def reset(self) -> None:
        self.log.begin_step(self._step)
        self.cache.clear()
        self.parts.allocator.reset()

    def end(self) -> None:
        self.shadow.end()

    def accounts_are_exact(self) -> bool:
        return all(account.is_exact for account in slot_accounts(self.parts.allocator))

    def _slots(self, span: Span) -> dict[KVGroup, torch.Tensor]:
        full = self.parts.allocator.full_slots(span.session, span.end)
        swa = self.parts.allocator.translate(full)
        self.parts.metadata.positions(span)
        slots = {KVGroup.FULL: full, KVGroup.SLIDING: swa[max(0, span.start - WINDOW_LEFT) :]}
        for group, used in slots.items():
            if used.min() < 0 or used.max() >= self.cache.pools[group].num_slots:
                raise SlotRangeError("a slot is outside its pool")
        return slots

    def _store(self, place: LayerPlace, spans: Sequence[Span], slots) -> None:
        k_cache, v_cache = self.cache.pools[place.group].layer(place.pool_layer)
        rows = torch.cat([rows_of(span, place.layer) for span in spans])
        used = [x[place.group][-span.rows :] for x, span in zip(slots, spans, strict=True)]
        self.parts.store.store(
            rows[:, 0],
            rows[:, 1],
            k_cache,
            v_cache,
            torch.cat(used),
            StoreContext(
                step=self._step,
                layer=place.layer,
                group=place.group,
                pool_layer=place.pool_layer,
                spans=tuple(spans),
            ),
        )

    def _attend(self, place: LayerPlace, spans: Sequence[Span], slots) -> None:
        k_cache, v_cache = self.cache.pools[place.group].layer(place.pool_layer)
        window_left = WINDOW_LEFT if place.group is KVGroup.SLIDING else None
        requests, row, entry = [], 0, 0
        for x, span in zip(slots, spans, strict=True):
            seen = x[place.group].numel()
            requests.append(
                Request(
                    span=span,
                    rows=slice(row, row + span.rows),
                    entries=slice(entry, entry + seen),
                    visible_start=span.end - seen,
                )
            )
            row, entry = row + span.rows, entry + seen
        q = torch.zeros(row, 2, 4)
        self.parts.attention.attend(
            AttentionCall(
                step=self._step,
                layer=place.layer,
                group=place.group,
                pool_layer=place.pool_layer,
                requests=tuple(requests),
                batch=tuple(request.span for request in requests),
                q=q,
                k=q[:, :1],
                v=q[:, :1],
                k_cache=k_cache,
                v_cache=v_cache,
                slots=torch.cat([x[place.group] for x in slots]),
                window_left=window_left,
                ahead=None,
                scale=1.0,
                softcap=None,
                out=torch.empty_like(q),
                scratch=None,
            )
        )


def rows_of(span: Span, layer: int) -> torch.Tensor:
    """Return K and V ``[T, 2, 1, 4]`` of a span's rows at a layer, another for each position."""
    position = torch.arange(span.start, span.end)[:, None, None, None]
    return torch.sin(position * 7.0 + layer * 3 + 1 + torch.arange(8).view(2, 1, 4))


def on_allocator(wrapper) -> PartWrapper:
    return lambda parts: replace(parts, allocator=wrapper(parts.allocator))


def on_store(wrapper) -> PartWrapper:
    return lambda parts: replace(parts, store=wrapper(parts.store))


class Passing:
    """Passes everything on to what it wraps; a fault overrides one method."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)
