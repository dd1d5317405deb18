"""The reader's numpy twin of ``swd_128`` against the kernels' definition in torch."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swarepro.bundle.device_digest import DeviceDigest, can_digest
from swarepro_kernels.reference import as_int64, digest

DTYPES = {
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "F32": torch.float32,
    "I64": torch.int64,
    "BOOL": torch.bool,
}


def kernels_digest(raw: bytes, dtype: str, shape: tuple[int, ...]) -> str:
    tensor = torch.empty(shape, dtype=DTYPES[dtype])
    if raw:
        flat = torch.from_numpy(np.frombuffer(raw, np.uint8).copy())
        tensor = flat.view(DTYPES[dtype]).reshape(shape)
    words = digest(tensor).tolist()
    return "".join(f"{word & (1 << 64) - 1:016x}" for word in words)


def readers_digest(raw: bytes, dtype: str, shape: tuple[int, ...], piece: int) -> str:
    state = DeviceDigest(dtype, shape)
    for start in range(0, len(raw), piece):
        state.update(memoryview(raw)[start : start + piece])
    return state.hexdigest()


@given(
    dtype=st.sampled_from(["BF16", "F16", "F32", "I64"]),
    shape=st.lists(st.integers(0, 7), max_size=3),
    seed=st.integers(0, 10**6),
    piece=st.sampled_from([8, 24, 1 << 20]),
)
def test_both_give_the_same(dtype, shape, seed, piece):
    num = int(np.prod(shape)) if shape else 1
    size = num * torch.empty(0, dtype=DTYPES[dtype]).element_size()
    raw = np.random.default_rng(seed).bytes(size)
    found = readers_digest(raw, dtype, tuple(shape), piece)
    assert found == kernels_digest(raw, dtype, tuple(shape))


def test_bool_and_names():
    raw = bytes([1, 0, 1])
    assert readers_digest(raw, "BOOL", (3,), 8) == kernels_digest(raw, "BOOL", (3,))
    assert can_digest("BF16")
    assert not can_digest("F8_E4M3")


def test_a_flipped_bit_and_another_shape_show():
    raw = bytes(range(48))
    base = readers_digest(raw, "F32", (3, 4), 16)
    assert readers_digest(raw, "F32", (4, 3), 16) != base
    assert readers_digest(raw, "I64", (6,), 16) != base
    flipped = bytes([*raw[:40], raw[40] ^ 1, *raw[41:]])
    assert readers_digest(flipped, "F32", (3, 4), 16) != base
    assert as_int64((1 << 64) - 1) == -1


@pytest.mark.parametrize("order", [(8, 0), (16, 8)])
def test_swapped_words_show(order):
    raw = bytearray(range(48))
    first, second = order
    raw[first : first + 8], raw[second : second + 8] = (
        raw[second : second + 8],
        raw[first : first + 8],
    )
    assert readers_digest(bytes(raw), "F32", (12,), 48) != readers_digest(
        bytes(range(48)), "F32", (12,), 48
    )
