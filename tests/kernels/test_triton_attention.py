"""The attention kernels, interpreted on the CPU or compiled with `-m gpu`, by one set of tests.

Each is held against its eager twin and against SDPA in float64 with an explicit mask.
"""

import pytest
import torch
import triton
import triton.language as tl

from swarepro_kernels import launch_attention, reference
from swarepro_kernels.launch import launch
from swarepro_kernels.launch_attention import CHUNK_CONFIGS, DECODE_CONFIGS
from swarepro_kernels.paged_attention import paged_attention
from swarepro_kernels.paged_decode import DecodeScratch, num_decode_splits, paged_decode
from swarepro_kernels.paged_prefill import paged_prefill
from swarepro_kernels.tile import program_id
from tests.kernels.attention_cases import Shape, looking_ahead, make_case

# (atol, rtol). The output is rounded once, to 2^-9 relative in bf16 and 2^-12 in fp16, and so is
# each weight before it meets a value (values reach 4). In float32 what is left is the rounding of
# scores and of sums over at most 513 keys.
TOLERANCE = {
    torch.bfloat16: (8e-3, 2**-8),
    torch.float16: (1e-3, 2**-11),
    torch.float32: (2e-6, 1e-6),
}
DTYPES = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)

SHAPES = [
    # the window hides part of the context
    Shape(1, 1, 4, 2, 32, 0),
    Shape(1, 63, 16, 8, 16, 20),
    Shape(2, 63, 4, 2, 16, 31),
    Shape(2, 448, 4, 2, 64, 63),
    Shape(3, 64, 16, 8, 32, 63),
    Shape(63, 0, 4, 1, 16, 31),
    Shape(63, 448, 4, 2, 16, 40),
    Shape(65, 1, 4, 1, 16, 63),
    Shape(5, 448, 4, 1, 256, 100),
    Shape(2, 63, 4, 2, 512, 20),
    # it is as long as the context
    Shape(2, 0, 4, 2, 16, 1),
    Shape(3, 1, 16, 8, 32, 3),
    Shape(64, 64, 4, 2, 16, 127),
    # it is longer, or there is none
    Shape(1, 0, 4, 1, 16, None),
    Shape(1, 448, 4, 2, 32, None),
    Shape(64, 0, 16, 1, 16, None),
    Shape(65, 64, 4, 2, 64, 500),
    Shape(63, 63, 4, 1, 16, 500),
    Shape(64, 448, 4, 2, 32, None),
    Shape(3, 64, 16, 1, 512, None),
    # head_dims that fill no power of two, a group that is none
    Shape(3, 20, 8, 4, 48, 9),
    Shape(5, 30, 6, 2, 80, None),
]
SMALL = Shape(5, 70, 4, 2, 32, 31)


def prefill(case, **more):
    arguments = case.arguments | more
    inputs = (case.q, case.k, case.v, case.k_cache, case.v_cache)
    return paged_prefill(*inputs, arguments.pop("slots", case.prefix_slots), **arguments)


def general(case, **more):
    """The general route with one request."""
    arguments = case.arguments | more
    slots = arguments.pop("slots", case.slots)
    return paged_attention(
        case.q,
        case.k_cache,
        case.v_cache,
        slots,
        query_indptr=torch.tensor([0, case.q.shape[0]], device=slots.device),
        kv_indptr=torch.tensor([0, slots.shape[0]], device=slots.device),
        **arguments,
    )


def decode(case, **more):
    """The last row of the case, with the slots that it sees."""
    window, context = case.shape.window_left, case.slots.shape[0]
    slots = case.slots[0 if window is None else max(0, context - 1 - window) :]
    arguments = {"scale": case.arguments["scale"]} | more
    return paged_decode(case.q[-1:], case.k_cache, case.v_cache, slots, **arguments)


KERNELS = pytest.mark.parametrize("run", [prefill, general, decode], ids=lambda run: run.__name__)


def excess(out, expected, dtype):
    """By how much the worst element is off, in tolerances."""
    atol, rtol = TOLERANCE[dtype]
    expected = expected.double()
    return ((out.double() - expected).abs() / (atol + rtol * expected.abs())).max().item()


def same_bits(first, second):
    return torch.equal(first.view(torch.uint8), second.view(torch.uint8))


@DTYPES
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_matches_sdpa_and_the_eager_twin(shape, dtype, device):
    case = make_case(shape, dtype, device)
    expected = case.expected(shape.window_left)
    inputs = (case.q, case.k, case.v, case.k_cache, case.v_cache, case.prefix_slots)
    twin = reference.paged_prefill(*inputs, **case.arguments)
    for out in (prefill(case), general(case)):
        assert out.dtype == dtype
        assert out.is_contiguous()
        assert excess(out, expected, dtype) <= 1
        assert excess(out, twin, dtype) <= 1
    assert excess(decode(case), expected[-1:], dtype) <= 1
    window_left = shape.window_left
    if window_left is not None and 0 < window_left < min(64, shape.prefix + shape.rows - 1):
        for wrong in (window_left - 1, window_left + 1):  # the tolerance sees one key
            assert excess(out, case.expected(wrong), dtype) > 1


@DTYPES
@pytest.mark.parametrize("shape", [s for s in SHAPES if s.rows > 1], ids=str)
def test_rows_see_ahead_to_the_end_of_their_block(shape, dtype, device):
    case = make_case(shape, dtype, device)
    ahead = looking_ahead(shape.rows, device)
    expected = case.expected(shape.window_left, ahead=ahead)
    inputs = (case.q, case.k, case.v, case.k_cache, case.v_cache, case.prefix_slots)
    twin = reference.paged_prefill(*inputs, ahead=ahead, **case.arguments)
    for run in (prefill, general):
        out = run(case, ahead=ahead)
        assert excess(out, expected, dtype) <= 1
        assert excess(out, twin, dtype) <= 1
        if shape.rows > 2:
            assert excess(run(case), expected, dtype) > 1  # it sees who looks ahead
        assert same_bits(run(case, ahead=torch.zeros_like(ahead)), run(case))


@DTYPES
@pytest.mark.parametrize("window_left", [None, 20])
def test_requests_side_by_side_see_ahead_in_their_own(dtype, window_left, device):
    q, pool, slots, query_indptr, kv_indptr = requests(dtype, device)
    lengths = query_indptr.diff().tolist()
    ahead = torch.cat([looking_ahead(rows, device) for rows in lengths])
    arguments = {
        "query_indptr": query_indptr,
        "kv_indptr": kv_indptr,
        "window_left": window_left,
        "scale": 32**-0.5,
    }
    inputs = (q, pool[:, 0], pool[:, 1], slots)
    twin = reference.paged_attention(*inputs, ahead=ahead, **arguments)
    out = paged_attention(*inputs, ahead=ahead, **arguments)
    assert excess(out, twin, dtype) <= 1
    assert excess(paged_attention(*inputs, **arguments), twin, dtype) > 1


@KERNELS
def test_softcap(run, device):
    case = make_case(SMALL, torch.float32, device)
    capped = run(case, softcap=0.5)
    expected = case.expected(SMALL.window_left, softcap=0.5)[-capped.shape[0] :]
    assert excess(capped, expected, torch.float32) <= 1
    assert excess(run(case), expected, torch.float32) > 1


def requests(dtype, device):
    """Chunks and decodes of one pool; returns queries, pool, slots, and both indptr."""
    generator = torch.Generator().manual_seed(7)
    lengths = [(1, 9), (70, 75), (1, 1), (3, 200), (1, 64)]
    query_indptr, kv_indptr = [
        torch.tensor([0, *column]).cumsum(0) for column in zip(*lengths, strict=True)
    ]
    num_slots = int(kv_indptr[-1])
    q = torch.randn(int(query_indptr[-1]), 6, 32, generator=generator).to(dtype)
    pool = torch.randn(num_slots + 1, 2, 2, 32, generator=generator).to(dtype)
    slots = torch.randperm(num_slots, generator=generator) + 1
    return [x.to(device) for x in (q, pool, slots, query_indptr, kv_indptr)]


@DTYPES
@pytest.mark.parametrize("window_left", [None, 20])
def test_general_route_takes_chunks_and_decodes_together(dtype, window_left, device):
    q, pool, slots, query_indptr, kv_indptr = requests(dtype, device)
    arguments = {
        "query_indptr": query_indptr,
        "kv_indptr": kv_indptr,
        "window_left": window_left,
        "scale": 0.2,
    }
    out = paged_attention(q, pool[:, 0], pool[:, 1], slots, **arguments)
    twin = reference.paged_attention(q, pool[:, 0], pool[:, 1], slots, **arguments)
    assert excess(out, twin, dtype) <= 1
    arguments["kv_indptr"] = kv_indptr + torch.tensor([0, 0, 0, 0, -1, 0], device=device)
    shifted = reference.paged_attention(q, pool[:, 0], pool[:, 1], slots, **arguments)
    assert excess(out, shifted, dtype) > 1  # the tolerance sees a key of another request


@pytest.mark.parametrize(
    ("dtype", "num_splits"),
    [*((dtype, None) for dtype in TOLERANCE), *((torch.bfloat16, n) for n in (1, 3, 20))],
    ids=str,
)
def test_decode_of_several_requests(dtype, num_splits, device):
    """20 splits leave most shares without a key, and one request has a single key."""
    q, pool, slots, _, kv_indptr = requests(dtype, device)
    arguments = {"kv_indptr": kv_indptr, "scale": 0.2}
    inputs = (q[:5], pool[:, 0], pool[:, 1], slots)
    out = paged_decode(*inputs, num_splits=num_splits, **arguments)
    assert excess(out, reference.paged_decode(*inputs, **arguments), dtype) <= 1


def test_decode_with_the_most_splits(device):
    case = make_case(Shape(1, 500, 4, 1, 16, None), torch.float32, device)
    out = decode(case, num_splits=128)
    assert excess(out, case.expected(None), torch.float32) <= 1


def test_decode_of_a_group_larger_than_a_tile(device):
    case = make_case(Shape(1, 40, 40, 2, 16, None), torch.float32, device)
    assert excess(decode(case), case.expected(None), torch.float32) <= 1


CONFIGS = sorted({c for row in CHUNK_CONFIGS.values() for c in row}, key=str)
DECODES = sorted({c for row in DECODE_CONFIGS.values() for c in row}, key=str)


@pytest.mark.parametrize("config", CONFIGS + DECODES, ids=lambda c: f"{c.block_m}x{c.block_n}")
def test_every_tile_of_the_tables(config, device):
    """The tiles that a GPU uses, here too: the online softmax crosses other boundaries."""
    case = make_case(Shape(37, 130, 4, 1, 16, 60), torch.bfloat16, device)
    expected = case.expected(60)
    runs = [decode] if config in DECODES and config not in CONFIGS else [prefill, general]
    for run in runs:
        out = run(case, config=config)
        assert excess(out, expected[-out.shape[0] :], torch.bfloat16) <= 1


@KERNELS
@DTYPES
@pytest.mark.parametrize("value", [1e4, float("nan")], ids=["finite", "nan"])
def test_hidden_rows_and_scratch_change_no_bit(run, dtype, value, device):
    """Unowned slots, the sentinel, rows outside every window, and scratch; NaN is no exception."""
    case = make_case(SMALL, dtype, device)
    visible = case.visible_prefix_slots() if run is prefill else case.visible_slots()
    poisoned = case.with_pool_rows(value, but=visible)
    more = [{}, {}]
    if run is decode:
        clean_scratch, scratch = (scratch_for(2, device) for _ in range(2))
        for tensor in (scratch.partial, scratch.lse):
            tensor.fill_(value)
        more = [{"scratch": clean_scratch, "num_splits": 2}, {"scratch": scratch, "num_splits": 2}]
    clean = run(case, **more[0])
    assert clean.isfinite().all()
    assert same_bits(clean, run(poisoned, **more[1]))
    poisoned.pool[case.slots[-1] if run is decode else visible[0]] = value
    assert not same_bits(clean, run(poisoned, **more[1]))  # the control: a row that is seen


@pytest.mark.parametrize("run", [prefill, general], ids=lambda run: run.__name__)
def test_large_keys_of_later_rows_change_no_bit_of_earlier_ones(run, device):
    case = make_case(SMALL, torch.bfloat16, device)
    clean = run(case)
    case.pool[case.slots[-1]] = 1e4
    case.k[-1] = case.v[-1] = 1e4
    dirty = run(case)
    assert same_bits(clean[:-1].contiguous(), dirty[:-1].contiguous())
    assert not same_bits(clean[-1], dirty[-1])


@pytest.mark.parametrize("run", [prefill, general], ids=lambda run: run.__name__)
def test_positions_that_no_query_sees_may_be_left_out(run, device):
    case = make_case(SMALL, torch.bfloat16, device)
    trimmed = case.visible_prefix_slots() if run is prefill else case.visible_slots()
    assert trimmed.shape[0] < case.slots.shape[0] - 10
    assert same_bits(run(case), run(case, slots=trimmed))


def scratch_for(num_splits, device, num_requests=1):
    return DecodeScratch.make(
        num_splits=num_splits, num_requests=num_requests, num_heads=4, head_dim=32, device=device
    )


def test_larger_scratch_changes_no_bit(device):
    case = make_case(SMALL, torch.bfloat16, device)
    clean = decode(case, num_splits=3)
    large = scratch_for(5, device, num_requests=2)
    large.partial.fill_(float("nan"))
    large.lse.fill_(float("nan"))
    assert same_bits(clean, decode(case, num_splits=3, scratch=large))


class Shuffled:
    """Draws an order for each launch, and remembers how many there were."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.launches = []

    def __call__(self, num_programs):
        self.launches.append(num_programs)
        return torch.randperm(num_programs, generator=self.generator)


@KERNELS
def test_no_program_order_changes_a_bit(run, device):
    case = make_case(Shape(40, 150, 8, 4, 16, 70), torch.bfloat16, device)
    more = {"num_splits": 3} if run is decode else {}
    natural = run(case, **more)
    for seed in range(3):
        order = Shuffled(seed)
        assert same_bits(natural, run(case, order=order, **more))
        assert len(order.launches) == (2 if run is decode else 1)
        assert min(order.launches) >= 8


@triton.jit
def _last_writer_kernel(out_ptr: tl.tensor, order_ptr: tl.tensor, HAS_ORDER: tl.constexpr) -> None:
    tl.store(out_ptr, program_id(order_ptr, HAS_ORDER))


def test_an_order_dependent_kernel_is_seen():
    """The control of the test above; a compiled launch need not show it."""
    seen = set()
    for seed in range(4):
        out = torch.zeros(1, dtype=torch.int64)
        launch(_last_writer_kernel, 32, out, order=Shuffled(seed), num_warps=1)
        seen.add(out.item())
    assert len(seen) > 1


def test_splits_are_a_function_of_shapes():
    assert num_decode_splits(1, 8, 1) == 1
    assert num_decode_splits(448, 1, 1) == 4
    assert num_decode_splits(32768, 8, 1) == 64
    assert num_decode_splits(32768, 1, 1) == 128
    assert num_decode_splits(32768, 8, 256) == 1
    case = make_case(Shape(1, 300, 4, 2, 32, None), torch.bfloat16)
    zeros = make_case(Shape(1, 300, 4, 2, 32, None), torch.bfloat16)
    zeros.pool.zero_()
    counts = []
    for each in (case, zeros):
        order = Shuffled(0)
        decode(each, order=order)
        counts.append(order.launches)
    assert counts[0] == counts[1] == [3 * 2, 4]


@pytest.mark.parametrize("table", [CHUNK_CONFIGS, DECODE_CONFIGS], ids=["chunk", "decode"])
@DTYPES
@pytest.mark.parametrize("head_dim", [16, 32, 48, 64, 96, 128, 256, 272, 512])
def test_every_head_dim_fits_both_cards(table, dtype, head_dim):
    padded = launch_attention.padded_head_dim(head_dim)
    for budget in (99 << 10, 227 << 10):
        config = launch_attention.choose_config(table, head_dim, dtype, budget)
        assert config.shared_bytes(padded, dtype.itemsize) <= budget
        for extent in (config.block_m, config.block_n):
            assert extent >= 16
            assert extent & (extent - 1) == 0


@pytest.mark.parametrize("head_dim", [8, 24, 528, 1024])
def test_a_head_dim_without_a_configuration_is_an_error_that_says_so(head_dim, device):
    q = torch.zeros(1, 2, head_dim, device=device)
    slots = torch.zeros(1, dtype=torch.int64, device=device)
    for call in (
        lambda: paged_decode(q, q, q, slots, scale=1.0),
        lambda: paged_prefill(q, q, q, q, q, slots, window_left=None, scale=1.0),
    ):
        with pytest.raises(ValueError, match=f"head_dim {head_dim} has no .* launch configuration"):
            call()
    with pytest.raises(ValueError, match="for 16384 bytes of shared memory"):
        launch_attention.choose_config(CHUNK_CONFIGS, 512, torch.bfloat16, 16384)


def test_the_manifest_gets_every_kernel(device):
    described = launch_attention.describe_attention_launches(64, torch.bfloat16, device)
    assert set(described) == {"paged_prefill", "paged_attention", "paged_decode"}
    assert all(
        set(row) == {"block_m", "block_n", "num_warps", "num_stages"} for row in described.values()
    )


def test_what_does_not_fit_together_is_refused(device):
    case = make_case(SMALL, torch.bfloat16, device)
    q, k_cache, v_cache, slots = case.q[:1], case.k_cache, case.v_cache, case.slots
    flipped = k_cache.transpose(1, 2).contiguous().transpose(1, 2)
    for arguments, match in (
        ((q.float(), k_cache, v_cache, slots), "queries are torch.float32"),
        ((q[..., :16], k_cache, v_cache, slots), "last dimension of 16"),
        ((q[:, :3], k_cache, v_cache, slots), "3 query heads cannot share"),
        ((q, flipped, v_cache, slots), "contiguous last dimension"),
        ((case.q, k_cache, v_cache, slots), "5 queries need a kv_indptr of 6"),
    ):
        with pytest.raises(ValueError, match=match):
            paged_decode(*arguments, scale=1.0)
    with pytest.raises(ValueError, match="129 splits"):
        paged_decode(q, k_cache, v_cache, slots, scale=1.0, num_splits=129)
    with pytest.raises(ValueError, match="cannot hold 3 shares"):
        decode(case, num_splits=3, scratch=scratch_for(2, device))


def test_no_token_is_no_launch(device):
    case = make_case(SMALL, torch.bfloat16, device)
    inputs = (case.q[:0], case.k[:0], case.v[:0], case.k_cache, case.v_cache, case.prefix_slots)
    assert paged_prefill(*inputs, window_left=None, scale=1.0).shape == (0, 4, 32)


def test_shapes_that_do_not_agree_are_refused(device):
    """A kernel reads what it is told to: a wrong row count would be a read outside a tensor."""
    case = make_case(SMALL, torch.float32, device)
    arguments = {"window_left": None, "scale": 1.0}
    rest = (case.k_cache, case.v_cache, case.prefix_slots)
    with pytest.raises(ValueError, match="5 queries need as many keys, not 3"):
        paged_prefill(case.q, case.k[:3], case.v[:3], *rest, **arguments)
    with pytest.raises(ValueError, match="K and V of one shape"):
        paged_prefill(case.q, case.k, case.v, case.k_cache, case.v_cache[:-1], rest[2], **arguments)
    with pytest.raises(ValueError, match="prefix_slots: one dimension of integers"):
        paged_prefill(case.q, case.k, case.v, *rest[:2], rest[2].float(), **arguments)
    with pytest.raises(ValueError, match="K and V of one shape"):
        paged_decode(case.q[:1], case.k_cache, case.v_cache[:-1], case.prefix_slots, scale=1.0)


def test_what_looks_ahead_has_one_integer_for_each_query(device):
    """The kernels read it without a look at its length."""
    case = make_case(SMALL, torch.float32, device)
    rows = SMALL.rows
    for odd, said in (
        (looking_ahead(rows - 1, device), rf"not \[{rows - 1}\] torch.int64"),
        (looking_ahead(rows, device).double(), "torch.float64"),
        (looking_ahead(rows, device)[:, None], rf"not \[{rows}, 1\]"),
    ):
        for run in (prefill, general):
            with pytest.raises(ValueError, match=rf"ahead: \[{rows}\] integers .*{said}"):
                run(case, ahead=odd)
    for run in (prefill, general):
        ahead = looking_ahead(rows, device)
        assert same_bits(run(case, ahead=ahead.int()), run(case, ahead=ahead))
