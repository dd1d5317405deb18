"""The attention twins against scaled_dot_product_attention in float64 with an explicit mask.

Tolerances: the twins compute in float32 and round once to the dtype, so the error is that dtype's
rounding (bf16 2^-8 relative to values of order one, fp16 2^-11) or, in float32, that of sums over
at most 512 keys.
"""

import pytest
import torch

from swarepro_kernels import paged_decode, paged_prefill

TOLERANCE = {torch.bfloat16: 8e-3, torch.float16: 1e-3, torch.float32: 2e-6}

# rows, prefix, query heads, kv heads, head_dim, window_left
SHAPES = [
    (1, 0, 4, 1, 16, None),
    (1, 1, 4, 2, 32, 0),
    (2, 63, 4, 2, 16, 31),
    (3, 64, 16, 8, 32, 63),
    (63, 0, 4, 1, 16, 31),
    (64, 64, 4, 2, 16, 127),
    (65, 64, 4, 2, 64, 500),
    (5, 448, 4, 1, 256, 100),
    (3, 64, 16, 1, 512, None),
]


def case(shape, dtype):
    rows, prefix, heads, kv_heads, head_dim, _ = shape
    generator = torch.Generator().manual_seed(sum(x or 0 for x in shape))

    def draw(*size):
        return torch.randn(*size, generator=generator).to(dtype)

    q = draw(rows, heads, head_dim)
    k, v = draw(rows, kv_heads, head_dim), draw(rows, kv_heads, head_dim)
    pool = draw(2, prefix + rows + 5, kv_heads, head_dim)
    slots = torch.randperm(prefix + rows + 4, generator=generator)[: prefix + rows] + 1
    return q, k, v, pool, slots


def sdpa(q, keys, values, *, prefix, window_left, scale):
    """The reference: float64, keys repeated per query head, mask written out."""
    rows, heads, _ = q.shape
    query_at = torch.arange(prefix, prefix + rows)[:, None]
    key_at = torch.arange(prefix + rows)[None]
    mask = key_at <= query_at
    if window_left is not None:
        mask = mask & (query_at - key_at <= window_left)
    group = heads // keys.shape[1]
    out = torch.nn.functional.scaled_dot_product_attention(
        q.double().transpose(0, 1),
        keys.double().repeat_interleave(group, dim=1).transpose(0, 1),
        values.double().repeat_interleave(group, dim=1).transpose(0, 1),
        attn_mask=mask,
        scale=scale,
    )
    return out.transpose(0, 1)


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_prefill_matches_sdpa(shape, dtype):
    rows, prefix, _, _, head_dim, window_left = shape
    q, k, v, pool, slots = case(shape, dtype)
    scale = head_dim**-0.5
    out = paged_prefill(
        q, k, v, pool[0], pool[1], slots[:prefix], window_left=window_left, scale=scale
    )
    keys, values = torch.cat([pool[0][slots[:prefix]], k]), torch.cat([pool[1][slots[:prefix]], v])
    expected = sdpa(q, keys, values, prefix=prefix, window_left=window_left, scale=scale)
    torch.testing.assert_close(out.double(), expected, atol=TOLERANCE[dtype], rtol=0)
    if rows + prefix > 1:  # the tolerance sees one key too many or too few
        other = prefix + rows if window_left is None else window_left
        wrong = sdpa(q, keys, values, prefix=prefix, window_left=max(0, other - 1), scale=scale)
        if window_left is not None and 0 < window_left < prefix + rows - 1:
            assert (out.double() - wrong).abs().max() > TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("shape", [s for s in SHAPES if s[0] == 1] + [(1, 300, 4, 1, 64, None)])
def test_decode_reads_all_its_keys_from_the_pool(shape, dtype):
    _, prefix, _, _, head_dim, _ = shape
    q, _, _, pool, slots = case(shape, dtype)
    scale = head_dim**-0.5
    out = paged_decode(q, pool[0], pool[1], slots, scale=scale)
    expected = sdpa(q, pool[0][slots], pool[1][slots], prefix=prefix, window_left=None, scale=scale)
    torch.testing.assert_close(out.double(), expected, atol=TOLERANCE[dtype], rtol=0)


def test_softcap_squashes_scores_before_the_mask():
    q, k, v, pool, slots = case((3, 5, 4, 2, 16, None), torch.float32)
    out = paged_prefill(
        q, k, v, pool[0], pool[1], slots[:5], window_left=None, scale=3.0, softcap=2.0
    )
    keys = torch.cat([pool[0][slots[:5]], k]).double().repeat_interleave(2, dim=1)
    values = torch.cat([pool[1][slots[:5]], v]).double().repeat_interleave(2, dim=1)
    scores = torch.einsum("thd,chd->htc", q.double(), keys) * 3.0
    scores = 2.0 * torch.tanh(scores / 2.0)
    hidden = torch.arange(8)[None] > torch.arange(5, 8)[:, None]
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    expected = torch.einsum("htc,chd->thd", weights, values)
    torch.testing.assert_close(out.double(), expected, atol=2e-6, rtol=0)
    uncapped = paged_prefill(q, k, v, pool[0], pool[1], slots[:5], window_left=None, scale=3.0)
    assert (out - uncapped).abs().max() > 1e-2


def test_what_nobody_may_read_changes_no_bit():
    """Unowned slots, the sentinel and keys left of every window hold a large finite value."""
    shape = (3, 64, 4, 2, 16, 31)
    q, k, v, pool, slots = case(shape, torch.bfloat16)
    arguments = {"window_left": 31, "scale": 0.25}
    clean = paged_prefill(q, k, v, pool[0], pool[1], slots[:64], **arguments)
    poisoned = torch.full_like(pool, 1e4)
    visible = slots[64 - 31 : 64]
    poisoned[:, visible] = pool[:, visible]
    dirty = paged_prefill(q, k, v, poisoned[0], poisoned[1], slots[:64], **arguments)
    assert torch.equal(clean, dirty)
    poisoned[:, visible[0]] = 1e4  # the control: a key that row 0 does see
    assert not torch.equal(
        clean, paged_prefill(q, k, v, poisoned[0], poisoned[1], slots[:64], **arguments)
    )
