"""Pools of rows, and the cache that puts them beside the lifecycle of their slots."""

import pytest
import torch

from swarepro.errors import BackendError
from swarepro.kvcache import HybridKVCache, KVGroup, KVGroupSpec, KVPool
from tests.unit.kvcache.owners import fresh, snapshot, spans

CPU = torch.device("cpu")
FULL = KVGroupSpec(
    group=KVGroup.FULL, layer_ids=(5, 11), num_kv_heads=1, head_dim=8, sliding_window=None
)
SLIDING = KVGroupSpec(
    group=KVGroup.SLIDING, layer_ids=(0, 1, 2), num_kv_heads=2, head_dim=4, sliding_window=6
)


def cache(*groups: KVGroupSpec, page_size: int = 4, fill: float = 0.0) -> HybridKVCache:
    return HybridKVCache(
        groups,
        capacity=32,
        swa_capacity=16,
        page_size=page_size,
        dtype=torch.float32,
        device=CPU,
        fill=fill,
    )


def pool(spec: KVGroupSpec = SLIDING, *, capacity: int = 12, page_size: int = 4) -> KVPool:
    made = KVPool(spec, capacity=capacity, page_size=page_size, dtype=torch.bfloat16, device=CPU)
    made.kv.copy_(torch.arange(made.kv.numel()).reshape(made.kv.shape))
    return made


@pytest.mark.parametrize(("page_size", "slots"), [(1, 13), (3, 15), (4, 16), (12, 24)])
def test_a_pool_has_one_page_more_than_its_capacity(page_size: int, slots: int) -> None:
    made = pool(page_size=page_size)
    assert made.num_slots == slots
    assert made.kv.shape == (3, slots, 2, 2, 4)
    assert made.kv.dtype == torch.bfloat16


def test_the_slots_that_an_owner_hands_out_are_just_those_of_the_pool() -> None:
    """The last slot of the last page is the last row; page 0 is never used."""
    owner = fresh(3, swa_pages=3, page_size=4)
    owner.ensure(spans((0, 0, 12)))
    slots = owner.full_slots(0, 12)
    assert (int(slots.min()), int(slots.max())) == (4, pool().num_slots - 1)
    pool().gather(0, slots)
    with pytest.raises(IndexError):
        pool().gather(0, slots + 1)


def test_a_layer_is_a_view_and_a_gather_is_a_copy() -> None:
    made = pool()
    k, v = made.layer(1)
    assert k.shape == v.shape == (16, 2, 4)
    assert torch.equal(k, made.kv[1, :, 0])
    assert torch.equal(v, made.kv[1, :, 1])
    rows = made.gather(1, torch.tensor([5, 4, 5]))
    assert torch.equal(rows, made.kv[1, [5, 4, 5]])
    k[5] = -1
    assert bool((made.kv[1, 5, 0] == -1).all())
    assert not bool((rows[0, 0] == -1).any())


def test_memory_that_cannot_be_had_is_said_with_its_size() -> None:
    with pytest.raises(BackendError) as caught:
        pool(capacity=2**48)
    assert "the sliding KV pool of 281474976710656 positions takes" in caught.value.message
    assert "GiB" in caught.value.message
    assert caught.value.hint == "choose a smaller capacity, or fewer layers"


def test_the_window_of_a_group_counts_the_query_and_its_left_does_not() -> None:
    assert (SLIDING.window_left, FULL.window_left) == (5, None)


def test_a_cache_has_a_pool_for_each_group_with_its_own_capacity() -> None:
    both = cache(FULL, SLIDING)
    assert both.pools[KVGroup.FULL].kv.shape == (2, 36, 2, 1, 8)
    assert both.pools[KVGroup.SLIDING].kv.shape == (3, 20, 2, 2, 4)
    owner = both.lifecycle
    assert (owner.page_size, owner.window_left) == (4, 5)
    assert owner.full.capacity == 32
    assert owner.swa is not None
    assert owner.swa.capacity == 16
    assert owner.mapping.tolist() == [0] * 36


def test_a_stage_without_sliding_layers_has_no_swa_pool_and_no_mapping() -> None:
    alone = cache(FULL)
    assert set(alone.pools) == {KVGroup.FULL}
    assert (alone.lifecycle.swa, alone.lifecycle.window_left) == (None, None)
    assert alone.lifecycle.mapping.numel() == 0
    alone.lifecycle.ensure(spans((0, 0, 32)))
    alone.lifecycle.evict(0, 30)
    assert alone.lifecycle.tables[0].evicted == 0


def test_a_stage_of_sliding_layers_alone_still_has_full_slots() -> None:
    alone = cache(SLIDING)
    assert set(alone.pools) == {KVGroup.SLIDING}
    alone.lifecycle.ensure(spans((0, 0, 5)))
    assert alone.lifecycle.full_slots(0, 5).tolist() == [4, 5, 6, 7, 8]


@pytest.mark.parametrize("fill", [0.0, 3e38, float("nan")])
def test_clearing_fills_every_row_and_leaves_the_owners_alone(fill: float) -> None:
    both = cache(FULL, SLIDING, fill=fill)
    wanted = torch.tensor(fill)
    both.lifecycle.ensure(spans((0, 0, 9)))
    before = snapshot(both.lifecycle)
    for made in both.pools.values():
        assert torch.equal(made.kv.nan_to_num(7), wanted.expand(made.kv.shape).nan_to_num(7))
        made.kv.fill_(5)
    both.clear()
    for made in both.pools.values():
        assert torch.equal(made.kv.nan_to_num(7), wanted.expand(made.kv.shape).nan_to_num(7))
    assert snapshot(both.lifecycle) == before
