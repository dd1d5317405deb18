"""The attention twins against scaled_dot_product_attention in float64 with an explicit mask."""

import pytest
import torch

from swarepro_kernels.reference import paged_attention, paged_decode, paged_prefill
from tests.kernels.attention_cases import SHAPES, TOLERANCE, Shape, looking_ahead, make_case

DTYPES = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)


@DTYPES
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_prefill_matches_sdpa(shape, dtype):
    case = make_case(shape, dtype)
    out = paged_prefill(
        case.q, case.k, case.v, case.k_cache, case.v_cache, case.prefix_slots, **case.arguments
    )
    window_left = shape.window_left
    expected = case.expected(window_left)
    torch.testing.assert_close(out.double(), expected, atol=TOLERANCE[dtype], rtol=0)
    if window_left is not None and 0 < window_left < shape.prefix + shape.rows - 1:
        wrong = case.expected(window_left - 1)  # the tolerance sees one key too many
        assert (out.double() - wrong).abs().max() > TOLERANCE[dtype]


@DTYPES
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows_see_ahead_to_the_end_of_their_block(shape, dtype):
    case = make_case(shape, dtype)
    ahead = looking_ahead(shape.rows)
    arguments = case.arguments | {"ahead": ahead}
    inputs = (case.q, case.k, case.v, case.k_cache, case.v_cache)
    whole = {
        "query_indptr": torch.tensor([0, shape.rows]),
        "kv_indptr": torch.tensor([0, case.slots.shape[0]]),
    }
    expected = case.expected(shape.window_left, ahead=ahead)
    for out in (
        paged_prefill(*inputs, case.prefix_slots, **arguments),
        paged_attention(case.q, *inputs[3:], case.slots, **whole, **arguments),
    ):
        torch.testing.assert_close(out.double(), expected, atol=TOLERANCE[dtype], rtol=0)
        if shape.rows > 2:
            off = (out.double() - case.expected(shape.window_left)).abs().amax(dim=(1, 2))
            assert (off > TOLERANCE[dtype]).tolist() == (ahead > 0).tolist()


@DTYPES
@pytest.mark.parametrize(
    "shape", [s for s in SHAPES if s.rows == 1] + [Shape(1, 300, 4, 1, 64, None)]
)
def test_decode_reads_all_its_keys_from_the_pool(shape, dtype):
    case = make_case(shape, dtype)
    scale = shape.head_dim**-0.5
    out = paged_decode(case.q, case.k_cache, case.v_cache, case.slots, scale=scale)
    torch.testing.assert_close(out.double(), case.expected(None), atol=TOLERANCE[dtype], rtol=0)


def test_requests_side_by_side_match_each_alone():
    """The general route on a chunk and two decodes; decode of two requests at once."""
    cases = [
        make_case(shape, torch.float32)
        for shape in (Shape(3, 9, 4, 2, 16, 5), Shape(1, 7, 4, 2, 16, 5), Shape(1, 0, 4, 2, 16, 5))
    ]
    q = torch.cat([case.q for case in cases])
    pool = torch.cat([case.pool for case in cases])
    starts = [0, cases[0].pool.shape[0], cases[0].pool.shape[0] + cases[1].pool.shape[0]]
    slots = torch.cat([case.slots + start for case, start in zip(cases, starts, strict=True)])
    kv_indptr = torch.tensor([0, 12, 20, 21])
    out = paged_attention(
        q,
        pool[:, 0],
        pool[:, 1],
        slots,
        query_indptr=torch.tensor([0, 3, 4, 5]),
        kv_indptr=kv_indptr,
        window_left=5,
        scale=0.25,
    )
    expected = torch.cat([case.expected(5) for case in cases])
    torch.testing.assert_close(out.double(), expected, atol=2e-6, rtol=0)
    decoded = paged_decode(
        q[3:], pool[:, 0], pool[:, 1], slots[12:], scale=0.25, kv_indptr=kv_indptr[1:] - 12
    )
    expected = torch.cat([case.expected(None) for case in cases[1:]])
    torch.testing.assert_close(decoded.double(), expected, atol=2e-6, rtol=0)


def test_softcap_squashes_scores_before_the_mask():
    case = make_case(Shape(3, 5, 4, 2, 16, None), torch.float32)
    inputs = (case.q, case.k, case.v, case.k_cache, case.v_cache, case.prefix_slots)
    out = paged_prefill(*inputs, **case.arguments, softcap=0.5)
    expected = case.expected(None, softcap=0.5)
    torch.testing.assert_close(out.double(), expected, atol=2e-6, rtol=0)
    assert (out - paged_prefill(*inputs, **case.arguments)).abs().max() > 1e-2


def test_what_nobody_may_read_changes_no_bit():
    """Unowned slots, the sentinel and keys left of every window hold a large finite value."""
    case = make_case(Shape(3, 64, 4, 2, 16, 31), torch.bfloat16)

    def run(case):
        return paged_prefill(
            case.q, case.k, case.v, case.k_cache, case.v_cache, case.prefix_slots, **case.arguments
        )

    visible = case.visible_prefix_slots()
    clean, poisoned = run(case), case.with_pool_rows(1e4, but=visible)
    assert torch.equal(clean, run(poisoned))
    poisoned.pool[visible[0]] = 1e4  # the control: a key that row 0 does see
    assert not torch.equal(clean, run(poisoned))
