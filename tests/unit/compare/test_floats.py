"""Values and ULPs against references that share no code with ours."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swarepro.bundle.dtypes import DTYPES
from swarepro.compare.floats import is_nonfinite, to_float64, ulp_distance

TORCH = {
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}


def every_value(name: str) -> tuple[np.ndarray, np.ndarray]:
    """All bit patterns of a small float in its view, and torch's opinion of their values."""
    dtype = DTYPES[name]
    codes = np.arange(1 << (8 * dtype.num_bytes), dtype=np.uint32).astype(dtype.bits)
    signed = codes.view(f"<i{dtype.num_bytes}").copy()
    values = torch.from_numpy(signed).view(TORCH[name]).to(torch.float64).numpy()
    return codes.view(dtype.view), values


@pytest.mark.parametrize("name", TORCH)
def test_every_value_of_the_small_floats_is_torchs(name):
    views, wanted = every_value(name)
    np.testing.assert_array_equal(to_float64(views, DTYPES[name]), wanted)
    np.testing.assert_array_equal(is_nonfinite(views, DTYPES[name]), ~np.isfinite(wanted))


@pytest.mark.parametrize("name", TORCH)
def test_ulps_of_the_small_floats_are_ranks_among_all_values(name):
    views, values = every_value(name)
    finite = np.isfinite(values)
    views, values = views[finite], values[finite]
    ranks = np.searchsorted(np.unique(values), values)  # -0.0 and 0.0 are one value
    order = np.random.default_rng(0).permutation(len(values))
    found = ulp_distance(views, views[order], DTYPES[name])
    np.testing.assert_array_equal(found, np.abs(ranks - ranks[order]))


@pytest.mark.parametrize(("name", "type_"), [("F32", np.float32), ("F64", np.float64)])
@given(
    start=st.floats(allow_nan=False, allow_infinity=False, width=32),
    steps=st.integers(0, 20),
    up=st.booleans(),
)
def test_ulps_are_nextafter_steps(name, type_, start, steps, up):
    value = first = type_(start)
    taken = 0
    for _ in range(steps):
        with np.errstate(over="ignore"):
            following = np.nextafter(value, type_(np.inf if up else -np.inf))
        if not np.isfinite(following):
            break
        value, taken = following, taken + 1
    pair = np.array([first], dtype=type_), np.array([value], dtype=type_)
    assert ulp_distance(*pair, DTYPES[name]) == taken
    assert ulp_distance(*reversed(pair), DTYPES[name]) == taken


@pytest.mark.parametrize("steps", [0, 1, 2, 17])
def test_bfloat16_ulps_are_torch_nextafter_steps(steps):
    start = torch.tensor([-2.0, -0.0, 0.0, 1.0, 255.0, 1e-38], dtype=torch.bfloat16)
    value = start
    for _ in range(steps):
        value = torch.nextafter(value, torch.tensor(torch.inf, dtype=torch.bfloat16))
    views = [tensor.view(torch.int16).numpy().view(np.uint16) for tensor in (start, value)]
    assert ulp_distance(*views, DTYPES["BF16"]).tolist() == [steps] * 6


@pytest.mark.parametrize("name", ["F64", "F32", "F16"])
def test_the_ends_of_the_range_do_not_overflow(name):
    view = DTYPES[name].view
    largest = np.array([np.finfo(view).max], dtype=view)
    bits_of_largest = int(largest.view(DTYPES[name].bits)[0])
    assert int(ulp_distance(-largest, largest, DTYPES[name])[0]) == 2 * bits_of_largest


def test_zeros_are_no_ulp_apart():
    pair = np.array([0.0], dtype=np.float32), np.array([-0.0], dtype=np.float32)
    assert ulp_distance(*pair, DTYPES["F32"]) == 0


@pytest.mark.parametrize("name", ["I64", "I32", "I8", "U8", "BOOL"])
def test_integers_are_finite(name):
    values = np.array([0, 1, 127], dtype=DTYPES[name].view)
    assert not is_nonfinite(values, DTYPES[name]).any()
    np.testing.assert_array_equal(to_float64(values, DTYPES[name]), [0, 1, 127])
