"""The metadata of one step: where each span's rows and slots are among those of all."""

import pytest
import torch

from swarepro.kvcache import HybridKVCache, KVGroup
from swarepro.plan import Phase, Span, Step
from swarepro.runtime.batch import build_batch
from tests.unit.ownership.stage import GROUPS, WINDOW_LEFT, FakeMetadata

SPANS = (
    Span(session=0, start=9, end=12, phase=Phase.PREFILL),
    Span(session=1, start=0, end=5, phase=Phase.PREFILL),
    Span(session=2, start=10, end=11, phase=Phase.DECODE),
)
WINDOWS = (
    (KVGroup.FULL, None),
    (KVGroup.SLIDING, WINDOW_LEFT),
    (KVGroup.FULL, WINDOW_LEFT),
    (KVGroup.SLIDING, None),
    (KVGroup.SLIDING, WINDOW_LEFT + 1),
)
"""The groups' own, and then what another layer table asks for beside them."""


@pytest.fixture
def cache():
    cache = HybridKVCache(
        GROUPS,
        capacity=64,
        swa_capacity=64,
        page_size=1,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    cache.lifecycle.ensure([Span(session=0, start=0, end=2), Span(session=2, start=0, end=3)])
    cache.lifecycle.ensure([Span(session=2, start=3, end=10), Span(session=0, start=2, end=9)])
    cache.lifecycle.ensure(SPANS)
    return cache


def built(cache, *, together):
    step = Step(index=3, spans=SPANS)
    return build_batch(
        step, cache, cache.lifecycle, FakeMetadata(), windows=WINDOWS[2:], together=together
    )


def first_visible(span, window_left):
    return 0 if window_left is None else max(0, span.start - window_left)


def own_slots(cache, span, group, window_left):
    """Return the slots of a span's visible positions, from the lifecycle alone."""
    slots = cache.lifecycle.full_slots(span.session, span.end)
    if group is KVGroup.SLIDING:
        slots = cache.lifecycle.translate(slots)
    return slots[first_visible(span, window_left) :].tolist()


@pytest.mark.parametrize(("group", "window_left"), WINDOWS)
def test_the_entries_of_each_span_are_its_own_slots(cache, group, window_left):
    (block,) = built(cache, together=True).blocks
    slots, requests = block.slots(group, window_left), block.requests(group, window_left)
    assert [request.span for request in requests] == list(SPANS)
    for request in requests:
        wanted = own_slots(cache, request.span, group, window_left)
        assert slots[request.entries].tolist() == wanted
        assert request.visible_start == first_visible(request.span, window_left)
    ends = [request.entries.stop for request in requests]
    assert [request.entries.start for request in requests] == [0, *ends[:-1]]
    assert ends[-1] == slots.numel()


def test_rows_follow_one_another(cache):
    (block,) = built(cache, together=True).blocks
    assert block.rows == (slice(0, 3), slice(3, 8), slice(8, 9))
    assert [request.rows for request in block.requests(KVGroup.FULL, None)] == list(block.rows)
    assert block.positions.tolist() == [9, 10, 11, 0, 1, 2, 3, 4, 10]


@pytest.mark.parametrize(("group", "window_left"), WINDOWS)
def test_a_block_of_one_span_begins_at_0(cache, group, window_left):
    blocks = built(cache, together=False).blocks
    assert [block.rows for block in blocks] == [(slice(0, 3),), (slice(0, 5),), (slice(0, 1),)]
    for block, span in zip(blocks, SPANS, strict=True):
        (request,) = block.requests(group, window_left)
        assert request.entries == slice(0, len(own_slots(cache, span, group, window_left)))


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("group", list(KVGroup))
def test_all_rows_of_the_step_are_stored_to_their_own_slots(cache, group, together):
    wanted = [slot for span in SPANS for slot in own_slots(cache, span, group, 0)[-span.rows :]]
    assert built(cache, together=together).store_slots(group).tolist() == wanted
