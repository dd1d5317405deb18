"""The store kernel against its eager twin: the same bits, in any order, duplicates included.

Every comparison is of bits: the kernel only moves them.
"""

import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from swarepro_kernels import reference, store_kv
from tests.kernels.program_orders import ORDERS, shuffled

BITS = {torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float32: torch.int32}
DTYPES = pytest.mark.parametrize("dtype", list(BITS), ids=str)

# rows, kv heads, head_dim, slots of the pool
SHAPES = [
    (1, 1, 16, 4),
    (2, 3, 24, 9),  # a head_dim that no tile fits exactly
    (3, 2, 32, 5),
    (33, 2, 64, 50),
    (17, 1, 256, 40),
    (5, 8, 512, 7),
]
POISON = 1e4


def drawn(rows, heads, head_dim, *, dtype, device, seed=0):
    """K and V as the runtime makes them: views of one projection, V copied or not."""
    generator = torch.Generator().manual_seed(seed)
    qkv = torch.randn(rows, 2 + 2 * heads, head_dim, generator=generator).to(dtype).to(device)
    return qkv[:, 2 : 2 + heads], qkv[:, 2 + heads :]


def pool(slots, heads, head_dim, *, dtype, device):
    """``[S, 2, K, D]``, each value another one."""
    values = torch.arange(slots * 2 * heads * head_dim, dtype=torch.int32)
    return (values % 4099 + POISON).to(dtype).view(slots, 2, heads, head_dim).to(device)


def bits(x):
    return x.contiguous().view(BITS[x.dtype]).cpu()


def stored(store, k, v, kv, slots, order=None):
    kv = kv.clone()
    store(k, v, kv[:, 0], kv[:, 1], slots.to(kv.device), order=order)
    return bits(kv)


@DTYPES
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_twins_bits_and_nothing_else_written(device, shape, dtype):
    rows, heads, head_dim, num_slots = shape
    k, v = drawn(rows, heads, head_dim, dtype=dtype, device=device)
    kv = pool(num_slots, heads, head_dim, dtype=dtype, device=device)
    slots = torch.randperm(num_slots, generator=torch.Generator().manual_seed(1))[:rows]
    out = stored(store_kv, k, v, kv, slots)
    assert torch.equal(out, stored(reference.store_kv, k, v, kv, slots))
    rest = torch.ones(num_slots, dtype=torch.bool).index_fill_(0, slots, False)
    assert torch.equal(out[rest], bits(kv)[rest])
    assert torch.equal(out[slots, 0], bits(k))
    assert torch.equal(out[slots, 1], bits(v))
    for order in ORDERS[: 5 if rows * heads < 20 else 1]:  # the interpreter takes 5 ms a program
        assert torch.equal(out, stored(store_kv, k, v, kv, slots, order))


@given(
    slots=st.lists(st.integers(0, 5), min_size=1, max_size=6),
    heads=st.integers(1, 3),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=40)
def test_duplicate_slots_end_as_the_order_says(device, slots, heads, seed):
    """Bit for bit what the twin gives under the same order, which is an emulation of it."""
    if device.type != "cpu":
        pytest.skip("an order is a schedule in the interpreter only")
    k, v = drawn(len(slots), heads, 8, dtype=torch.bfloat16, device=device, seed=seed)
    kv = pool(6, heads, 8, dtype=torch.bfloat16, device=device)
    where = torch.tensor(slots)
    for order in (None, shuffled(seed)):
        out = stored(store_kv, k, v, kv, where, order)
        assert torch.equal(out, stored(reference.store_kv, k, v, kv, where, order))


def test_duplicate_slots_depend_on_the_order_and_tear_rows(device):
    """The one exception to order independence; each piece comes from one of the rows."""
    if device.type != "cpu":
        pytest.skip("there the hardware chooses the order")
    k, v = drawn(6, 2, 16, dtype=torch.bfloat16, device=device)
    kv = pool(3, 2, 16, dtype=torch.bfloat16, device=device)
    seen, torn = set(), False
    for seed in range(12):
        out = stored(store_kv, k, v, kv, torch.ones(6, dtype=torch.int64), shuffled(seed))
        seen.add(out[1].numpy().tobytes())
        winners = {
            [torch.equal(out[1, which, head], bits(source[row, head])) for row in range(6)].index(
                True
            )
            for which, source in enumerate((k, v))
            for head in range(2)
        }
        torn |= len(winners) > 1
    if device.type == "cpu":
        assert len(seen) > 1
        assert torn


@DTYPES
def test_bits_of_nan_and_subnormal_numbers_survive(device, dtype):
    """All patterns of the dtype (every 2^16th in float32) pass through unchanged."""
    patterns = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32)
    patterns = patterns << 16 if dtype is torch.float32 else patterns.to(torch.int16)
    k = patterns.view(dtype).view(64, 4, 256).to(device)
    kv = torch.zeros(64, 2, 4, 256, dtype=dtype, device=device)
    out = stored(store_kv, k, k.flip(0), kv, torch.arange(64))
    assert torch.equal(out[:, 0], bits(k))
    assert torch.equal(out[:, 1], bits(k.flip(0)))


def test_strides_of_every_kind(device):
    """Heads before rows, gaps between rows and heads, K and V of different strides."""
    k = torch.randn(3, 5, 32, device=device).transpose(0, 1)
    v = torch.randn(9, 7, 40, device=device)[::2, 1:4, 4:36]
    kv = pool(8, 6, 32, dtype=torch.float32, device=device)
    slots = torch.tensor([[7, 0], [1, 0], [4, 0], [2, 0], [0, 0]]).to(device)[:, 0]
    outs = []
    for store in (store_kv, reference.store_kv):
        caches = kv.clone()
        store(k, v, caches[:, 0, ::2], caches[:, 1, 3:], slots)
        outs.append(bits(caches))
    assert torch.equal(*outs)
    assert not torch.equal(outs[0], bits(kv))


def test_slots_outside_the_pool_are_not_written(device):
    k, v = drawn(3, 2, 16, dtype=torch.float16, device=device)
    around = pool(9, 2, 16, dtype=torch.float16, device=device)
    inside = around[3:6]
    before = bits(around).clone()
    slots = torch.tensor([-1, 1, 3], device=device)
    for order in (None, shuffled(0)):
        store_kv(k, v, inside[:, 0], inside[:, 1], slots, order=order)
        after = bits(around)
        assert torch.equal(after[4, 0], bits(k[1]))
        untouched = [0, 1, 2, 3, 5, 6, 7, 8]
        assert torch.equal(after[untouched], before[untouched])


def test_no_rows_write_nothing(device):
    k, v = drawn(0, 2, 16, dtype=torch.float16, device=device)
    kv = pool(3, 2, 16, dtype=torch.float16, device=device)
    none = torch.zeros(0, dtype=torch.int64)
    assert torch.equal(stored(store_kv, k, v, kv, none), bits(kv))


def test_what_does_not_fit_is_an_error(device):
    k, v = drawn(2, 2, 16, dtype=torch.float16, device=device)
    kv = pool(3, 2, 16, dtype=torch.float16, device=device)
    slots = torch.tensor([0, 1], device=device)
    with pytest.raises(ValueError, match=r"found k torch\.float32, v torch\.float16"):
        store_kv(k.float(), v, kv[:, 0], kv[:, 1], slots)
    with pytest.raises(ValueError, match=r"caches \[S, K, D\] wanted"):
        store_kv(k, v, kv[:, 0, :1], kv[:, 1, :1], slots)
    with pytest.raises(ValueError, match=r"slot_mapping \[2\] int64 wanted"):
        store_kv(k, v, kv[:, 0], kv[:, 1], slots[:1])
    with pytest.raises(ValueError, match="contiguous"):
        store_kv(k[..., ::2], v[..., ::2], kv[:, 0, :, :8], kv[:, 1, :, :8], slots)
    with pytest.raises(ValueError, match="rows of 2048 do not fit"):
        wide = torch.zeros(2, 1, 2048, device=device)
        store_kv(wide, wide, wide, wide, slots)
    with pytest.raises(ValueError, match="an order of 8 programs was wanted"):
        store_kv(k, v, kv[:, 0], kv[:, 1], slots, order=lambda num: torch.arange(3))


@pytest.mark.parametrize(
    ("num_pairs", "pairs"), [(1, 1), (128, 1), (1023, 1), (2048, 2), (32768, 32), (10**7, 64)]
)
def test_small_stores_have_an_instance_for_each_pair(num_pairs, pairs):
    """So that on a GPU the rows of a chunk race, as an engine's do."""
    from importlib import import_module

    import_module("swarepro_kernels.store_kv")
    assert sys.modules["swarepro_kernels.store_kv"].pairs_of(num_pairs, 64) == pairs
