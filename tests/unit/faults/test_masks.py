"""Faults of the mask against a dense reference: which keys each query of a batch sees."""

from dataclasses import fields, replace
from types import SimpleNamespace

import pytest
import torch

from swarepro.faults import FAULTS
from swarepro.kvcache import KVGroup
from swarepro.plan import Phase, Span
from swarepro.runtime.parts import AttentionCall, LayerPlace, Request, StageParts
from swarepro.runtime.routes.eager import EagerAttention, EagerPagedAttention

WINDOW = 32
LEFT = WINDOW - 1
HEADS, KV_HEADS, DIM = 4, 2, 8
TILE = 16
SCALE = 0.3
SPANS = (
    Span(session=0, start=0, end=40),
    Span(session=1, start=32, end=52),
    Span(session=2, start=50, end=51, phase=Phase.DECODE),
    Span(session=3, start=0, end=WINDOW),
    Span(session=4, start=8, end=8 + WINDOW),
    Span(session=5, start=8, end=7 + WINDOW),
)
"""A chunk beyond the window, a later chunk, a token, a short chunk, and two around the window."""
LIMIT = 1e-5  # values are of order one, in float32


def first_seen(span, group):
    return 0 if group is KVGroup.FULL else max(0, span.start - LEFT)


def a_call(group: KVGroup) -> AttentionCall:
    """All spans in one call, their rows in slots drawn at random of one pool."""
    generator = torch.Generator().manual_seed(3)
    pool = torch.randn(2, 400, KV_HEADS, DIM, generator=generator)
    free = torch.randperm(399, generator=generator) + 1
    requests, slots, row, entry = [], [], 0, 0
    for span in SPANS:
        seen = first_seen(span, group)
        count = span.end - seen
        requests.append(
            Request(
                span=span,
                rows=slice(row, row + span.rows),
                entries=slice(entry, entry + count),
                visible_start=seen,
            )
        )
        slots.append(free[:count])
        free = free[count:]
        row, entry = row + span.rows, entry + count
    own = torch.cat([x[-span.rows :] for x, span in zip(slots, SPANS, strict=True)])
    return AttentionCall(
        step=0,
        layer=0,
        group=group,
        pool_layer=0,
        requests=tuple(requests),
        batch=tuple(request.span for request in requests),
        q=torch.randn(row, HEADS, DIM, generator=generator),
        k=pool[0, own],
        v=pool[1, own],
        k_cache=pool[0],
        v_cache=pool[1],
        slots=torch.cat(slots),
        window_left=LEFT if group is KVGroup.SLIDING else None,
        ahead=None,
        scale=SCALE,
        softcap=None,
        out=torch.empty(row, HEADS, DIM),
        scratch=SimpleNamespace(take=lambda shape, use, dtype=None: torch.empty(shape)),
    )


def dense(call: AttentionCall, sees) -> torch.Tensor:
    """Attend in float64, row by row and head by head, to the keys that ``sees`` says."""
    out = torch.full((call.q.shape[0], HEADS, DIM), torch.nan, dtype=torch.float64)
    for request in call.requests:
        slots = call.slots[request.entries]
        keys, values = call.k_cache[slots].double(), call.v_cache[slots].double()
        for row in range(request.span.rows):
            query = request.span.start + row
            seen = [
                index
                for index in range(slots.numel())
                if sees(request.span, query, request.visible_start + index, request.visible_start)
            ]
            for head in range(HEADS):
                of = head // (HEADS // KV_HEADS)
                scores = keys[seen, of] @ call.q[request.rows.start + row, head].double() * SCALE
                out[request.rows.start + row, head] = scores.softmax(0) @ values[seen, of]
    return out


def causal(span, query, key, seen):
    return key <= query


def windowed(span, query, key, seen):
    return query - LEFT <= key <= query


def is_later(span):
    return span.phase is Phase.PREFILL and span.start > 0


def too_many_in_prefill(span, query, key, seen):
    left = LEFT if span.phase is Phase.DECODE else LEFT + 1
    return query - left <= key <= query


def chunk_alone(span, query, key, seen):
    return windowed(span, query, key, seen) and not (span.rows >= WINDOW and key < span.start)


def without_offset(span, query, key, seen):
    if not is_later(span):
        return windowed(span, query, key, seen)
    return 0 <= key - seen <= query - span.start


def dropped_when_later(span, query, key, seen):
    return (causal if is_later(span) else windowed)(span, query, key, seen)


def rerouted(span, query, key, seen):
    beyond = span.phase is Phase.PREFILL and span.end > WINDOW
    return (causal if beyond else windowed)(span, query, key, seen)


def skips_first_tile(span, query, key, seen):
    in_tile = is_later(span) and query < span.start + TILE and span.start - seen >= TILE
    return windowed(span, query, key, seen) and not (in_tile and key < seen + TILE)


MASKS = [
    (None, KVGroup.SLIDING, windowed),
    (None, KVGroup.FULL, causal),
    ("window-one-too-large-in-prefill", KVGroup.SLIDING, too_many_in_prefill),
    ("window-never-set", KVGroup.SLIDING, causal),
    ("window-of-group-on-all", KVGroup.FULL, windowed),
    ("window-of-group-on-all", KVGroup.SLIDING, windowed),
    ("append-keeps-chunk-alone", KVGroup.SLIDING, chunk_alone),
    ("append-keeps-chunk-alone", KVGroup.FULL, causal),
    ("mask-without-offset", KVGroup.SLIDING, without_offset),
    ("window-dropped-on-continuation", KVGroup.SLIDING, dropped_when_later),
    ("prefill-rerouted-beyond-window", KVGroup.SLIDING, rerouted),
    ("first-query-tile", KVGroup.SLIDING, skips_first_tile),
    ("first-query-tile", KVGroup.FULL, causal),
]


def attention(fault: str | None, route):
    rest = {field.name: None for field in fields(StageParts)}
    place = LayerPlace(
        layer=0, config_layer=0, group=KVGroup.SLIDING, pool_layer=0, window_left=LEFT
    )
    parts = StageParts(
        **rest
        | {
            "attention": route,
            "allocator": SimpleNamespace(window_left=LEFT),
            "layers": SimpleNamespace(places=lambda: (place,)),
        }
    )
    return route if fault is None else FAULTS.get(fault).wrap(parts).attention


@pytest.mark.parametrize("route", [EagerAttention, EagerPagedAttention])
@pytest.mark.parametrize(("fault", "group", "sees"), MASKS)
def test_every_query_sees_the_keys_that_the_fault_says(fault, group, sees, route):
    call = a_call(group)
    wanted = dense(call, sees)
    found = attention(fault, route()).attend(call).double()
    torch.testing.assert_close(found, wanted, rtol=0, atol=LIMIT)


IMAGES = {0: (4, 12), 1: (44, 51), 4: (20, 30)}
"""By session; the second one crosses the end of its chunk's first tile of queries."""
CAUSAL_BY_ITSELF = ("mask-without-offset", "prefill-rerouted-beyond-window")


def with_images(call: AttentionCall) -> AttentionCall:
    ahead = torch.zeros(call.q.shape[0], dtype=torch.int64)
    for request in call.requests:
        for position in range(*IMAGES.get(request.span.session, (0, 0))):
            row = request.rows.start + position - request.span.start
            ahead[row] = IMAGES[request.span.session][1] - 1 - position
    return replace(call, ahead=ahead)


@pytest.mark.parametrize("route", [EagerAttention, EagerPagedAttention])
@pytest.mark.parametrize(
    ("fault", "group", "sees"), [row for row in MASKS if row[0] not in CAUSAL_BY_ITSELF]
)
def test_a_fault_that_is_none_of_images_leaves_them_as_they_are(fault, group, sees, route):
    """Also where it computes rows in a call of their own."""

    def sees_image(span, query, key, seen):
        first, end = IMAGES.get(span.session, (0, 0))
        return sees(span, query, key, seen) or (first <= query < end and first <= key < end)

    call = a_call(group)
    found = attention(fault, route()).attend(with_images(call)).double()
    torch.testing.assert_close(found, dense(call, sees_image), rtol=0, atol=LIMIT)
    assert not torch.allclose(found, dense(call, sees), rtol=0, atol=100 * LIMIT)


@pytest.mark.parametrize(("group", "sees"), dict.fromkeys(row[1:] for row in MASKS[2:]))
def test_no_two_masks_are_within_the_limit(group, sees):
    """The control: the reference tells them apart."""
    right = windowed if group is KVGroup.SLIDING else causal
    call = a_call(group)
    same = torch.allclose(dense(call, right), dense(call, sees), rtol=0, atol=100 * LIMIT)
    assert same is (sees is right)


def test_one_head_of_one_row_is_wrong():
    call = a_call(KVGroup.SLIDING)
    right = dense(call, windowed)
    found = attention("head-of-last-row", EagerAttention()).attend(call).double()
    differs = ((found - right).abs() > LIMIT).any(dim=2)
    last = [x.rows.stop - 1 for x in call.requests if x.span.rows > 1 and x.span.end > WINDOW]
    assert differs.nonzero().tolist() == [[row, HEADS - 1] for row in last]
    torch.testing.assert_close(found[last, -1], right[last, -2], rtol=0, atol=LIMIT)


def test_values_are_keys_in_full_layers_alone():
    for group in KVGroup:
        call = a_call(group)
        with_keys = replace(call, v_cache=call.k_cache) if group is KVGroup.FULL else call
        wanted = dense(with_keys, causal if group is KVGroup.FULL else windowed)
        found = attention("values-are-keys", EagerAttention()).attend(call).double()
        torch.testing.assert_close(found, wanted, rtol=0, atol=LIMIT)
