"""The digest: one definition, in eager torch and in Triton, that sees what plain sums do not.

No tolerance anywhere: digests are equal or different.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from swarepro_kernels import digest, digest_hex, reference
from swarepro_kernels.digest import _digest
from tests.kernels.program_orders import ORDERS

MASK = (1 << 64) - 1


def draw(*shape, dtype=torch.bfloat16, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def as_written(x):
    """The definition of `reference.digest` in Python's integers, word for word."""
    raw = x.contiguous().flatten().view(torch.uint8).numpy().tobytes()
    name = str(x.dtype).removeprefix("torch.").encode()

    def words(data):
        return [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]

    lanes = []
    for lane in range(2):
        step, factors = reference.DIGEST_STEPS[lane], reference.DIGEST_FACTORS[lane]

        def mix(z, factors=factors):
            for factor in factors:
                z = (z ^ z >> 32) * factor & MASK
            return z ^ z >> 32

        total = 0
        for i, word in enumerate(words(raw)):
            key = (i + 1) * step & MASK
            total += mix(word ^ key if lane == 0 else (word + key) & MASK)
        seed = 0
        for word in [1, len(name), *words(name), x.dim(), *x.shape]:
            seed = mix((seed + step & MASK) ^ word)
        lanes.append(mix((total + seed) & MASK))
    return "".join(f"{lane:016x}" for lane in lanes)


def test_known_answers(device):
    """Frozen: a bundle's digests must mean the same in a year."""
    known = {
        "19195cf15b3e86bd7f4042d446ac8dd8": torch.zeros(0, dtype=torch.bfloat16),
        "365d4c319a3fd11485d0618fda4df2b9": torch.zeros(3, 4, dtype=torch.bfloat16),
        "de799584d4957dd34fb97d198afcbc4c": torch.arange(1000, dtype=torch.int64).view(10, 100),
        "dde2f98439d4a5580a58f1fd0d120e8b": torch.arange(1001, dtype=torch.float32),
        "ff3e193cf3cbbee8c85137841d23ec0e": torch.arange(5, dtype=torch.uint8),
    }
    for expected, x in known.items():
        assert digest_hex(reference.digest(x)) == expected
        assert digest_hex(digest(x.to(device))) == expected


@pytest.mark.parametrize(
    "dtype",
    [torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool],
    ids=str,
)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (7, 5), (2, 3, 4), (9000,)], ids=str)
def test_triton_eager_and_the_definition_agree(device, shape, dtype):
    x = (draw(*shape) * 50).to(dtype)
    expected = as_written(x)
    assert digest_hex(reference.digest(x)) == expected
    assert digest_hex(reference.digest(x.to(device))) == expected
    assert digest_hex(digest(x.to(device))) == expected


def test_every_launch_shape_and_order_gives_the_same(device):
    """Block sizes, instances with one and several tiles, a last tile in part, a tail of bytes."""
    x = draw(50_001).view(torch.uint8)[:-3].to(device)
    expected = reference.digest(x)
    for block, most_tiles in ((4096, 16), (1024, 1), (1024, 4), (1024, 16), (512, 2), (256, 9)):
        for order in (None, ORDERS[1]):
            out = _digest(x, None, order, block=block, most_tiles=most_tiles)
            assert torch.equal(out, expected), (block, most_tiles, order)
    for order in ORDERS:
        assert torch.equal(digest(x, order=order), expected)


def test_strided_views_and_odd_storage_offsets(device):
    qkv = draw(9, 6, 32).to(device)
    view = qkv[::2, 1:4, 5:30]
    assert torch.equal(digest(view), digest(view.contiguous()))
    assert torch.equal(digest(qkv.transpose(0, 1)), reference.digest(qkv.transpose(0, 1)))
    flat = draw(3000).to(device)
    for offset in range(5):
        part = flat[offset : offset + 2049]
        assert torch.equal(digest(part), digest(part.clone()))
        assert torch.equal(reference.digest(part), digest(part))


def test_out_is_a_row_of_a_table(device):
    table = torch.full((3, 2), -5, dtype=torch.int64, device=device)
    x = draw(10_000).to(device)  # several instances
    assert digest(x, out=table[1]).data_ptr() == table[1].data_ptr()
    assert torch.equal(table[1], reference.digest(x))
    assert (table[[0, 2]] == -5).all()
    with pytest.raises(ValueError, match=r"out \[2\] int64, contiguous"):
        digest(x, out=table[:, 0])


@given(size=st.integers(1, 200), where=st.integers(0, 10**6), seed=st.integers(0, 99))
@settings(max_examples=60)
def test_one_flipped_bit_anywhere_changes_both_lanes(device, size, where, seed):
    """Certain, and not only likely: every step from a word to its lane is a bijection."""
    x = draw(size, seed=seed).to(device)
    other = x.clone()
    byte, bit = divmod(where % (size * 16), 8)
    other.view(torch.uint8)[byte] ^= 1 << bit
    assert (digest(x) != digest(other)).all()


def test_every_bit_of_a_word_changes_half_of_the_digest():
    """Avalanche, for each of the 64 bits of a word: 50 % +- 6 % of each half, on average of 256."""
    words = torch.randint(-(1 << 62), 1 << 62, (256,), generator=torch.Generator().manual_seed(0))
    index = torch.arange(256)
    base = reference.digest_terms(words, index)
    seeds = reference.digest_seeds(torch.int64, (1,))
    shifts = torch.arange(64)
    for bit in range(64):
        flipped = reference.digest_terms(words ^ reference.as_int64(1 << bit), index)
        changed = reference.digest_finish(base, seeds) ^ reference.digest_finish(flipped, seeds)
        share = ((changed[..., None] >> shifts) & 1).double().mean(dim=(1, 2))
        assert (share - 0.5).abs().max() < 0.06, bit


@given(
    rows=st.integers(2, 12),
    width=st.sampled_from([1, 3, 4, 8, 32]),
    data=st.data(),
)
@settings(max_examples=60)
def test_two_rows_swapped(device, rows, width, data):
    x = draw(rows, width, seed=data.draw(st.integers(0, 999))).to(device)
    first, second = data.draw(
        st.lists(st.integers(0, rows - 1), min_size=2, max_size=2, unique=True)
    )
    swapped = x.clone()
    swapped[first], swapped[second] = x[second], x[first]
    if torch.equal(x, swapped):
        return
    assert (digest(x) != digest(swapped)).all()


def test_plain_sums_do_not_see_a_swap():
    """The control: exclusive or and sum of words are blind to what the digest sees."""
    x = draw(16, 32)
    swapped = x[torch.tensor([1, 0, *range(2, 16)])]
    words, others = reference.words_of(x), reference.words_of(swapped)
    assert not torch.equal(words, others)
    assert words.sum() == others.sum()
    parity, other_parity = 0, 0
    for word, other in zip(words.tolist(), others.tolist(), strict=True):
        parity, other_parity = parity ^ word, other_parity ^ other
    assert parity == other_parity
    assert (reference.digest(x) != reference.digest(swapped)).all()


def test_words_arranged_to_cancel_in_one_lane_do_not_in_the_other():
    """Each lane alone is blind to a swap of words that makes up for the keys; both are not."""
    first, second = 3, 11
    words = torch.randint(0, 1 << 62, (16,), generator=torch.Generator().manual_seed(0))
    for lane in range(2):
        step = reference.DIGEST_STEPS[lane]
        keys = [(i + 1) * step & MASK for i in (first, second)]
        values = [int(words[i]) & MASK for i in (first, second)]
        moved = words.clone()
        if lane == 0:
            moved[first] = reference.as_int64(values[1] ^ keys[1] ^ keys[0])
            moved[second] = reference.as_int64(values[0] ^ keys[0] ^ keys[1])
        else:
            moved[first] = reference.as_int64(values[1] + keys[1] - keys[0])
            moved[second] = reference.as_int64(values[0] + keys[0] - keys[1])
        changed = reference.digest(words) != reference.digest(moved)
        assert changed.tolist() == ([False, True] if lane == 0 else [True, False])


def test_shape_dtype_and_length_are_part_of_it(device):
    """The same bytes under another shape or dtype; zeros, whose words all count."""
    x = torch.zeros(4, 6, dtype=torch.bfloat16, device=device)
    variants = [
        x,
        x.view(6, 4),
        x.view(24),
        x.view(1, 4, 6),
        x.view(torch.float16),
        x.view(torch.int16),
        x.view(torch.float32),
        torch.zeros(4, 7, dtype=torch.bfloat16, device=device),
        torch.zeros(0, 6, dtype=torch.bfloat16, device=device),
        torch.zeros(0, 7, dtype=torch.bfloat16, device=device),
    ]
    assert len({digest_hex(digest(variant)) for variant in variants}) == len(variants)


def test_bytes_and_not_values_count(device):
    """0.0 and -0.0 differ; the same NaN does not; another payload does."""
    zero = torch.zeros(5, dtype=torch.bfloat16, device=device)
    assert (digest(zero) != digest(-zero)).all()
    nan = torch.full((5,), math.nan, dtype=torch.bfloat16, device=device)
    assert torch.equal(digest(nan), digest(nan.clone()))
    payload = nan.clone()
    payload.view(torch.int16)[2] += 1
    assert payload.isnan().all()
    assert (digest(nan) != digest(payload)).all()


@pytest.mark.parametrize("x", [draw(64, 512), torch.zeros(64, 512, dtype=torch.bfloat16)])
def test_a_million_one_byte_edits_do_not_collide(x):
    """Distinct edits of one tensor: 128-bit digests and each 64-bit lane all differ, and of the
    32-bit pieces as many collide as of random numbers (116 pairs of 10^6 in 2^32)."""
    count = 1_000_000
    raw = x.flatten().view(torch.uint8)
    generator = torch.Generator().manual_seed(0)
    edits = torch.randperm(raw.numel() * 255, generator=generator)[:count]
    place, change = edits // 255, edits % 255 + 1
    words = reference.words_of(x)
    index = place // 8
    before = words[index]
    after = before ^ (change << (place % 8 * 8))
    sums = reference.digest_terms(words, torch.arange(words.numel())).sum(1)
    terms = [reference.digest_terms(value, index) for value in (before, after)]
    seeds = reference.digest_seeds(x.dtype, tuple(x.shape))
    lanes = reference.digest_finish(sums[:, None] - terms[0] + terms[1], seeds)

    for at in (0, count // 2, count - 1):  # the shortcut is the digest of the edited tensor
        edited = x.clone()
        edited.view(-1).view(torch.uint8)[place[at]] ^= change[at].to(torch.uint8)
        assert torch.equal(reference.digest(edited), lanes[:, at])
    assert (lanes != reference.digest(x)[:, None]).all()
    for lane in lanes:
        assert lane.unique().numel() == count
        for piece in (lane & 0xFFFF_FFFF, (lane >> 32) & 0xFFFF_FFFF):
            assert 70 < count - piece.unique().numel() < 170


def test_the_order_is_asked_for(device):
    asked = []

    def note(num_programs):
        asked.append(num_programs)

    digest(torch.ones(3, 5, device=device), order=note)
    assert asked == [1]
