from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarepro.compare import tensor_diff
from swarepro.compare.tensor_diff import DiffAccumulator, diff_tensors
from swarepro.compare.types import Tolerance
from tests.unit.bundle.factory import bf16


def diff(baseline, target, dtype="F32", dims=("T", "E"), **more):
    dtypes = dtype if isinstance(dtype, tuple) else (dtype, dtype)
    return diff_tensors(baseline, target, dtypes=dtypes, dims=dims, **more)


def base(rows=8, columns=6):
    return np.random.default_rng(1).normal(size=(rows, columns)).astype(np.float32)


def test_equal_tensors():
    found = diff(base(), base(), row_start=3)
    assert found.num_mismatched == 0
    assert found.first_mismatch == found.rows == found.positions == found.heads == ()
    assert found.max_ulp == 0
    assert found.max_abs == 0.0
    assert found.relative_l2 == 0.0
    assert found.cosine == pytest.approx(1.0)
    assert (found.num_elements, found.num_rows, found.num_heads) == (48, 8, 0)


def test_numbers_against_plain_numpy():
    baseline, target = base(), base()
    target[2, 3] += 1
    target[5] *= 1.01
    found = diff(baseline, target, row_start=60)
    left, right = baseline.astype(np.float64), target.astype(np.float64)
    assert found.num_mismatched == np.count_nonzero(baseline != target) == 7
    assert found.first_mismatch == (2, 3)
    assert found.rows == (2, 5)
    assert found.positions == (62, 65)
    assert found.max_abs == np.abs(right - left).max()
    assert found.relative_l2 == pytest.approx(np.linalg.norm(right - left) / np.linalg.norm(left))
    cosine = (left * right).sum() / np.linalg.norm(left) / np.linalg.norm(right)
    assert found.cosine == pytest.approx(cosine)


@pytest.mark.parametrize(
    ("dims", "shape", "place", "heads", "num_heads"),
    [
        (("T", "H", "D"), (4, 3, 5), (1, 2, 0), (2,), 3),
        (("T", "J", "D"), (4, 3, 5), (1, 0, 4), (0,), 3),
        (("C", "2", "K", "D"), (4, 2, 3, 5), (0, 1, 1, 1), (1,), 3),
        (("T", "E"), (4, 3), (0, 1), (), 0),
    ],
)
def test_heads(dims, shape, place, heads, num_heads):
    baseline, target = np.ones(shape, np.float32), np.ones(shape, np.float32)
    target[place] = 2
    found = diff(baseline, target, dims=dims)
    assert (found.heads, found.num_heads) == (heads, num_heads)
    assert found.first_mismatch == place
    assert found.rows == (place[0],)
    assert found.positions == ()


def test_zeros_of_other_sign_differ_by_bytes_and_by_no_ulp():
    found = diff(np.zeros((2, 2), np.float32), -np.zeros((2, 2), np.float32))
    assert found.num_mismatched == 4
    assert found.max_ulp == 0
    assert found.max_abs == 0.0
    assert found.relative_l2 is None
    assert found.cosine is None


def test_the_same_nan_is_equal_and_another_payload_is_not():
    baseline = np.ones((2, 2), np.float32)
    baseline.view(np.uint32)[0, 1] = 0x7FC00000
    assert diff(baseline, baseline.copy()).num_mismatched == 0
    target = baseline.copy()
    target.view(np.uint32)[0, 1] = 0x7FC00001
    found = diff(baseline, target)
    assert (found.num_mismatched, found.first_mismatch) == (1, (0, 1))
    assert (found.nonfinite_baseline, found.nonfinite_target) == (1, 1)
    assert (found.max_ulp, found.max_abs) == (0, 0.0)


def test_nonfinite_counts_and_numbers_over_finite_pairs():
    baseline, target = base(), base()
    baseline[0, 0], baseline[1, 1], target[2, 2] = np.nan, np.inf, -np.inf
    target[3, 3] += 0.5
    found = diff(baseline, target)
    assert (found.nonfinite_baseline, found.nonfinite_target) == (2, 1)
    assert found.rows == (0, 1, 2, 3)
    assert found.max_abs == pytest.approx(0.5)
    assert np.isfinite([found.relative_l2, found.cosine]).all()


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0,)])
def test_empty_tensors(shape):
    found = diff(np.zeros(shape, np.float32), np.zeros(shape, np.float32), dims=("T", "E"))
    assert (found.num_elements, found.num_mismatched, found.rows) == (0, 0, ())
    assert (found.relative_l2, found.cosine) == (None, None)
    assert found.num_rows == shape[0]


def test_scalars():
    found = diff(np.array(1.0, np.float32), np.array(2.0, np.float32), dims=())
    assert (found.num_elements, found.num_mismatched) == (1, 1)
    assert (found.first_mismatch, found.rows, found.num_rows) == ((), (), 0)
    assert found.max_abs == 1.0


def test_integers_have_no_ulps():
    found = diff(np.array([[1, 2]]), np.array([[1, 5]]), dtype="I64")
    assert (found.max_ulp, found.max_abs, found.num_mismatched) == (None, 3.0, 1)


def test_long_rows_are_walked_in_parts(monkeypatch):
    monkeypatch.setattr(tensor_diff, "BLOCK_ELEMENTS", 4)
    baseline, target = base(3, 11), base(3, 11)
    target[1, 9] = 7
    found = diff(baseline, target)
    assert (found.first_mismatch, found.rows, found.num_mismatched) == ((1, 9), (1,), 1)


class TestTolerance:
    def test_atol_and_rtol(self):
        baseline = np.array([[1.0, 100.0]], np.float32)
        target = baseline + np.array([[0.01, 0.5]], np.float32)
        assert diff(baseline, target, tolerance=Tolerance(atol=0.02)).num_mismatched == 1
        assert diff(baseline, target, tolerance=Tolerance(atol=0.6)).num_mismatched == 0
        assert diff(baseline, target, tolerance=Tolerance(rtol=0.006)).first_mismatch == (0, 0)
        both = Tolerance(atol=0.02, rtol=0.006)
        assert diff(baseline, target, tolerance=both).num_mismatched == 0

    def test_rtol_is_relative_to_the_baseline(self):
        one, two = np.array([[1.0]], np.float32), np.array([[2.0]], np.float32)
        loose = Tolerance(rtol=0.6)  # 1 is more than 0.6 of 1, and less than 0.6 of 2
        assert diff(one, two, tolerance=loose).num_mismatched == 1
        assert diff(two, one, tolerance=loose).num_mismatched == 0

    def test_max_ulp(self):
        baseline = bf16([[1.0, 2.0, -3.0]])
        target = baseline + np.array([[0, 1, 2]], np.uint16)
        assert diff(baseline, target, "BF16", tolerance=Tolerance(max_ulp=1)).num_mismatched == 1
        found = diff(baseline, target, "BF16", tolerance=Tolerance(max_ulp=2))
        assert (found.num_mismatched, found.max_ulp) == (0, 2)

    def test_nothing_is_tolerated_by_a_tolerance_of_zero(self):
        target = np.nextafter(base(), np.float32(np.inf))
        assert diff(base(), target, tolerance=Tolerance()).num_mismatched == 48
        assert diff(base(), target, tolerance=Tolerance(max_ulp=0)).num_mismatched == 48

    def test_nan_and_infinities_match_themselves_only(self):
        baseline = np.array([[np.nan, np.inf, -np.inf, np.nan, np.inf, 1.0, 0.0]], np.float32)
        target = np.array([[np.nan, np.inf, -np.inf, 1.0, -np.inf, np.inf, -0.0]], np.float32)
        baseline.view(np.uint32)[0, 0] ^= 1  # another payload
        found = diff(baseline, target, tolerance=Tolerance(atol=1e30, rtol=1.0, max_ulp=2**31))
        assert found.num_mismatched == 3
        assert found.first_mismatch == (0, 3)

    def test_integers_have_to_be_equal(self):
        loose = Tolerance(atol=10, rtol=10, max_ulp=10)
        pair = np.array([[1000]]), np.array([[1001]])
        assert diff(*pair, dtype="I64", tolerance=loose).num_mismatched == 1
        mixed = np.array([[1000]], np.int32), np.array([[1000]])
        assert diff(*mixed, dtype=("I32", "I64"), tolerance=loose).num_mismatched == 0

    def test_other_dtypes_are_compared_by_value(self):
        baseline = base()
        target = bf16(baseline)
        dtype = ("F32", "BF16")
        assert diff(baseline, target, dtype, tolerance=Tolerance(rtol=2**-7)).num_mismatched == 0
        found = diff(baseline, target, dtype, tolerance=Tolerance(rtol=1e-5))
        assert found.num_mismatched > 0
        assert found.max_ulp is None


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_answer_does_not_depend_on_how_rows_come_in(data):
    seed = data.draw(st.integers(0, 1000))
    rng = np.random.default_rng(seed)
    shape = (data.draw(st.integers(1, 9)), 2, 3)
    baseline = rng.normal(size=shape).astype(np.float32)
    target = np.where(rng.random(shape) < 0.2, baseline * 1.5, baseline).astype(np.float32)
    baseline[rng.random(shape) < 0.05] = np.nan
    dims = ("T", "H", "D")
    cuts = sorted(data.draw(st.sets(st.integers(1, shape[0]))) | {0, shape[0]})
    parts = DiffAccumulator(dtypes=("F32", "F32"), shape=shape, dims=dims, tolerance=None)
    for start, stop in pairwise(cuts):
        parts.add(baseline[start:stop], target[start:stop], row=start)
    whole, pieces = diff(baseline, target, dims=dims), parts.finish(positions=None)
    for name in ("relative_l2", "cosine"):
        assert getattr(whole, name) == pytest.approx(getattr(pieces, name))
    for name in ("num_mismatched", "first_mismatch", "rows", "heads", "max_ulp", "max_abs"):
        assert getattr(whole, name) == getattr(pieces, name)
    differ = baseline.view(np.uint32) != target.view(np.uint32)
    assert whole.num_mismatched == np.count_nonzero(differ)
    assert whole.rows == tuple(np.flatnonzero(differ.any(axis=(1, 2))))
    assert whole.heads == tuple(np.flatnonzero(differ.any(axis=(0, 2))))
    assert parts.is_identical == (not differ.any())
