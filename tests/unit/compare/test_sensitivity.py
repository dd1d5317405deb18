"""The pairs that blind the peers: all right, through bundles on disk, and no false alarm."""

import numpy as np
import pytest

from swarepro import points
from swarepro.compare.divergence import compare_bundles
from swarepro.compare.types import Verdict
from tests.unit.bundle.factory import Run, bf16, item, spans


def values(rows):
    return np.random.default_rng(3).normal(size=(rows, 16)).astype(np.float32)


def one_ulp(array):
    array.view(np.uint32)[5, 3] += 1


def swapped(array):
    array[[3, 200]] = array[[200, 3]]


def aliased(array):
    array[1500] = array[0]


def zeroed(array):
    array[1500] = 0


def negative_zero(array):
    array[7, 7] = 0.0
    array.view(np.uint32)[7, 7] |= 1 << 31


def payload(array):
    array.view(np.uint32)[7, 7] = 0x7FC00001


def noise(array):
    array *= 1 + 0.03 * np.random.default_rng(4).normal(size=array.shape).astype(np.float32)


def nothing(array):
    pass


def with_zero(array):
    array[7, 7] = 0.0


def with_nan(array):
    array.view(np.uint32)[7, 7] = 0x7FC00000


def verdict(tmp_path, baseline, target, dtype="F32"):
    runs = [
        Run(
            items=[item(points.EMBEDDING_OUTPUT, array, dtype=dtype)],
            steps=spans((0, len(array))),
        ).open(tmp_path / name)
        for name, array in (("a", baseline), ("b", target))
    ]
    return compare_bundles(*runs)


@pytest.mark.parametrize(
    ("rows", "common", "change", "row_numbers"),
    [
        (256, nothing, one_ulp, (5,)),
        (256, nothing, swapped, (3, 200)),
        (2048, nothing, swapped, (3, 200)),
        (2048, nothing, aliased, (1500,)),
        (2048, nothing, zeroed, (1500,)),
        (256, with_zero, negative_zero, (7,)),
        (256, with_nan, nothing, None),
        (256, with_nan, payload, (7,)),
        (256, nothing, noise, tuple(range(256))),
        (256, nothing, nothing, None),
        (256, with_zero, nothing, None),
    ],
)
def test_pair(tmp_path, rows, common, change, row_numbers):
    baseline = values(rows)
    common(baseline)
    target = baseline.copy()
    change(target)
    found = verdict(tmp_path, baseline, target)
    if row_numbers is None:
        assert found.verdict is Verdict.IDENTICAL
        assert found.first is None
    else:
        assert found.verdict is Verdict.DIVERGED
        assert found.first.numbers.rows == row_numbers


@pytest.mark.parametrize("change", [1, 0x8000])
def test_a_bfloat16_bit(tmp_path, change):
    baseline = bf16(values(256))
    target = baseline.copy()
    target[9, 9] ^= change
    found = verdict(tmp_path, baseline, target, dtype="BF16")
    assert found.verdict is Verdict.DIVERGED
    assert found.first.numbers.first_mismatch == (9, 9)
    assert found.first.numbers.num_mismatched == 1
    assert verdict(tmp_path / "2", baseline, baseline, dtype="BF16").verdict is Verdict.IDENTICAL
