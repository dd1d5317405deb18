"""Rows by position, and how many of their values differ."""

import numpy as np
import pytest

from swarepro.compare.stacked import Stacked, num_differing
from tests.unit.bundle.factory import VIEWS, bf16

POSITIONS = np.arange(2, 5)
VALUES = np.array([[1.0, 2.0], [np.nan, 0.0], [np.inf, -3.0]], dtype=np.float32)


def side(values=VALUES, dtype: str = "F32", *, first: int = 2) -> Stacked:
    rows = bf16(values) if dtype == "BF16" else np.asarray(values).astype(VIEWS[dtype])
    return Stacked(positions=np.arange(first, first + len(rows)), rows=rows, dtype=dtype)


@pytest.mark.parametrize("dtype", ["F32", "F64", "F16", "BF16"])
def test_equal_bits_do_not_differ(dtype: str) -> None:
    assert num_differing(side(dtype=dtype), side(dtype=dtype), POSITIONS) == 0


@pytest.mark.parametrize("dtype", ["F32", "F64", "F16", "BF16"])
@pytest.mark.parametrize(("at", "value"), [((0, 1), 2.5), ((1, 0), 7.0), ((1, 1), -0.0)])
def test_one_value_differs(dtype: str, at: tuple[int, int], value: float) -> None:
    changed = VALUES.copy()
    changed[at] = value
    assert num_differing(side(dtype=dtype), side(changed, dtype), POSITIONS) == 1


def test_two_dtypes_differ_as_numbers() -> None:
    assert num_differing(side(dtype="BF16"), side(), POSITIONS) == 0
    changed = VALUES.copy()
    changed[0, 0], changed[1] = 1.001, (4.0, -0.0)
    assert num_differing(side(dtype="BF16"), side(changed), POSITIONS) == 2


def test_rows_are_found_by_their_position() -> None:
    longer = side(np.concatenate([VALUES[:1] + 9, VALUES]), first=1)
    assert num_differing(longer, side(), POSITIONS) == 0
    assert num_differing(longer, side(), np.array([3])) == 0
    assert num_differing(side(first=1), side(), np.array([2])) == 2


def test_rows_of_another_shape_differ_in_all() -> None:
    assert num_differing(side(), side(VALUES[:, :1]), POSITIONS) == 3
