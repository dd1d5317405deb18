"""store_kv against a loop over program instances in the given order."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swarepro_kernels.reference import store_kv


def naive_store(k, v, k_cache, v_cache, slots, order):
    """One write per program instance, one after another: the definition, word for word."""
    heads = k.shape[1]
    for program in order.tolist():
        row, rest = divmod(program, heads * 2)
        head, which = divmod(rest, 2)
        source, cache = ((k, k_cache), (v, v_cache))[which]
        cache[slots[row], head] = source[row, head]


def random_rows(rows: int, heads: int, seed: int, dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, heads, 8, generator=generator).to(dtype) for _ in range(2)]


def stored(k, v, slots, order, num_slots=9):
    caches = torch.full((2, num_slots, k.shape[1], 8), -7.0, dtype=k.dtype)
    store_kv(k, v, caches[0], caches[1], slots, order=None if order is None else lambda num: order)
    return caches


@given(
    slots=st.lists(st.integers(0, 8), min_size=1, max_size=7),
    heads=st.integers(1, 3),
    seed=st.integers(0, 10**6),
)
def test_any_slots_in_any_order_match_the_loop(slots, heads, seed):
    k, v = random_rows(len(slots), heads, seed)
    order = torch.randperm(
        len(slots) * heads * 2, generator=torch.Generator().manual_seed(seed + 1)
    )
    expected = torch.full((2, 9, heads, 8), -7.0, dtype=k.dtype)
    naive_store(k, v, expected[0], expected[1], torch.tensor(slots), order)
    assert torch.equal(stored(k, v, torch.tensor(slots), order), expected)


def test_no_order_is_program_order():
    k, v = random_rows(5, 2, 3)
    slots = torch.tensor([0, 0, 4, 0, 4])
    natural = torch.arange(5 * 2 * 2)
    assert torch.equal(stored(k, v, slots, None), stored(k, v, slots, natural))


@given(seed=st.integers(0, 10**6))
def test_a_correct_store_does_not_depend_on_the_order(seed):
    k, v = random_rows(6, 2, seed)
    slots = torch.tensor([3, 1, 8, 2, 5, 7])
    order = torch.randperm(24, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(stored(k, v, slots, order), stored(k, v, slots, None))


def test_duplicate_slots_depend_on_the_order_and_tear_rows():
    """The negative control: one shared slot shows several contents, some mixed from two rows."""
    k, v = random_rows(6, 2, 0)
    slots = torch.zeros(6, dtype=torch.int64)
    seen, torn = set(), False
    for seed in range(12):
        order = torch.randperm(24, generator=torch.Generator().manual_seed(seed))
        caches = stored(k, v, slots, order)
        seen.add(caches[:, 0].view(torch.int16).numpy().tobytes())
        rows = {
            next(row for row in range(6) if torch.equal(cache[0, head], source[row, head]))
            for cache, source in ((caches[0], k), (caches[1], v))
            for head in range(2)
        }
        torn |= len(rows) > 1
    assert len(seen) > 1
    assert torn


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_only_the_mapped_slots_are_written(dtype):
    k, v = random_rows(2, 1, 0, dtype)
    caches = stored(k, v, torch.tensor([2, 5]), None)
    untouched = [0, 1, 3, 4, 6, 7, 8]
    assert (caches[:, untouched] == -7.0).all()
    assert torch.equal(caches[0, [2, 5]], k)
    assert torch.equal(caches[1, [2, 5]], v)
