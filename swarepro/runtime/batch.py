"""The metadata of one step: which rows, at which positions, in which slots.

positions   0 ...... visible_start ...... start ...... end
full group  | prefix                     | the span's T rows |
sliding         out of every window | prefix | T rows |
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from swarepro.errors import SlotRangeError
from swarepro.kvcache import HybridKVCache, KVGroup
from swarepro.plan import Span, Step
from swarepro.runtime.parts import Allocator, Metadata, Request

Window = tuple[KVGroup, int | None]
"""A group, and how many keys to the left of a query are seen in it; None = all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanSlots:
    """Slots of one KV group for one span.

    Attributes:
        visible_start: first position that a query of the span can see.
        slots: ``[end - visible_start]`` int64 on the pools' device, the span's own rows last.
    """

    visible_start: int
    slots: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanBatch:
    """One span as a stage sees it.

    Attributes:
        span: whose rows, and which.
        positions: ``[T]`` int64 on the device.
        full_slots: ``[end]`` int64 on the CPU: full slot of every position so far.
        swa_slots: ``[end]`` int64 on the CPU through the mapping; None without sliding layers.
        visible: slots that attention and store use, by group and by what a layer of the group sees
            to the left of a query; see `LayerPlace`.
    """

    span: Span
    positions: torch.Tensor
    full_slots: torch.Tensor
    swa_slots: torch.Tensor | None
    visible: dict[Window, SpanSlots]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBlock:
    """Rows that go through the row-wise operations together.

    Attributes:
        spans: whose rows they are, in their order.
        rows: which rows are each span's.
        positions: ``[T]`` int64 on the device, of all of them.
    """

    spans: tuple[SpanBatch, ...]
    rows: tuple[slice, ...]
    positions: torch.Tensor

    def requests(self, group: KVGroup, window_left: int | None) -> tuple[Request, ...]:
        """Return the spans' parts of an attention call."""
        found = []
        first = 0
        for batch, rows in zip(self.spans, self.rows, strict=True):
            visible = batch.visible[group, window_left]
            last = first + visible.slots.shape[0]
            found.append(
                Request(
                    span=batch.span,
                    rows=rows,
                    entries=slice(first, last),
                    visible_start=visible.visible_start,
                )
            )
            first = last
        return tuple(found)

    def slots(self, group: KVGroup, window_left: int | None) -> torch.Tensor:
        """Return the visible slots of all spans, span after span."""
        return joined([batch.visible[group, window_left].slots for batch in self.spans])


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """One step as a stage sees it: its rows in blocks, in the order of the step's spans.

    Attributes:
        windows: what the layers of each group see by the model's config, by group.
    """

    step: int
    blocks: tuple[RowBlock, ...]
    windows: dict[KVGroup, int | None]

    def store_slots(self, group: KVGroup) -> torch.Tensor:
        """Return the slots ``[T]`` of all rows of the step."""
        return joined(
            [
                batch.visible[group, self.windows[group]].slots[-batch.span.rows :]
                for block in self.blocks
                for batch in block.spans
            ]
        )

    @property
    def spans(self) -> tuple[Span, ...]:
        """The step's spans."""
        return tuple(batch.span for block in self.blocks for batch in block.spans)


def joined(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the parts one after another; a single one as it is, without a copy."""
    return parts[0] if len(parts) == 1 else torch.cat(tuple(parts))


def build_batch(
    step: Step,
    cache: HybridKVCache,
    allocator: Allocator,
    metadata: Metadata,
    *,
    windows: Iterable[Window] = (),
    together: bool,
) -> StepBatch:
    """Build the metadata of ``step``; the slots must have been made to exist before.

    The whole prefix of each span is translated through the mapping here, once.

    Args:
        step: what is computed.
        cache: whose slots are meant.
        allocator: owner of the slots.
        metadata: of the rows' positions.
        windows: of the stage's layers, beside those that the groups have by the model's config.
        together: all spans form one block; else each is a block of its own, so that a span's bytes
            do not depend on what else is in the step.

    Raises:
        SlotRangeError: a slot that the step would use is outside its pool.
    """
    own = {group: pool.spec.window_left for group, pool in cache.pools.items()}
    seen = dict.fromkeys([*own.items(), *windows])
    spans = [_span_batch(span, cache, allocator, metadata, seen) for span in step.spans]
    blocks = [_block(spans)] if together else [_block([span]) for span in spans]
    return StepBatch(step=step.index, blocks=tuple(blocks), windows=own)


def _block(spans: list[SpanBatch]) -> RowBlock:
    rows = []
    first = 0
    for batch in spans:
        rows.append(slice(first, first + batch.span.rows))
        first += batch.span.rows
    return RowBlock(
        spans=tuple(spans),
        rows=tuple(rows),
        positions=joined([batch.positions for batch in spans]),
    )


def _span_batch(
    span: Span,
    cache: HybridKVCache,
    allocator: Allocator,
    metadata: Metadata,
    windows: Iterable[Window],
) -> SpanBatch:
    full_slots = allocator.full_slots(span.session, span.end)
    swa_slots = allocator.translate(full_slots) if KVGroup.SLIDING in cache.pools else None
    found: dict[Window, SpanSlots] = {}
    for group, window_left in windows:
        visible_start = 0 if window_left is None else max(0, span.start - window_left)
        table = full_slots if group is KVGroup.FULL else swa_slots
        if table is None:
            raise RuntimeError("a stage with sliding layers has no mapping")
        visible = table[visible_start:]
        _check_range(visible, cache.pools[group].num_slots, group, span, visible_start)
        found[group, window_left] = SpanSlots(
            visible_start=visible_start, slots=visible.to(cache.device)
        )
    return SpanBatch(
        span=span,
        positions=metadata.positions(span).to(cache.device),
        full_slots=full_slots,
        swa_slots=swa_slots,
        visible=found,
    )


def _check_range(
    slots: torch.Tensor, num_slots: int, group: KVGroup, span: Span, visible_start: int
) -> None:
    outside = (slots < 0) | (slots >= num_slots)
    if bool(outside.any()):
        at = int(outside.nonzero()[0])
        raise SlotRangeError(
            f"session {span.session} position {visible_start + at} lies in slot {int(slots[at])}"
            f" of the {group} pool, which has slots 0 to {num_slots - 1}",
            hint="a slot of the other pool, or of a stale table, was used; nothing was accessed",
        )
