import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarepro import points
from swarepro.compare.align import align_positions
from swarepro.compare.spread import Spread, measure_spread, vector_errors
from tests.unit.bundle.factory import Run, bf16, item, spans


@pytest.fixture
def measured(tmp_path):
    def measure(baseline, target, *, point=points.O_PROJ, dtype="F32") -> Spread:
        sides = [
            Run(items=[item(point, array, layer=0, dtype=dtype)]).open(tmp_path / name)
            for name, array in (("b", baseline), ("t", target))
        ]
        (joined,) = align_positions(*sides).joined
        return measure_spread(*sides, joined.overlaps)

    return measure


def test_the_error_of_a_row_is_relative_to_its_own_norm(measured):
    baseline = np.ones((4, 4))
    target = baseline.copy()
    target[2] += 0.5
    found = measured(baseline, target)
    assert found.errors[:, 0].tolist() == [0.0, 0.0, 0.5, 0.0]
    assert found.worst == 0.5
    assert found.relative_l2 == 0.25  # one of four rows, half of its norm
    assert found.positions.tolist() == [0, 1, 2, 3]


def test_a_row_near_zero_does_not_blow_up(measured):
    baseline = np.ones((4, 4))
    baseline[1] = 1e-9
    target = baseline.copy()
    target[1] += 0.1
    found = measured(baseline, target)
    typical = np.sqrt(3 / 4) * 2  # the median is 2, the root mean square of 2, 2, 2 and 0 less
    assert found.worst == pytest.approx(0.2 / typical, rel=1e-6)


def rows_of(*norms: float) -> npt.NDArray[np.float64]:
    """Return ``[rows, 4]`` with these norms, each row in another direction."""
    rows = np.random.default_rng(2).normal(size=(len(norms), 4))
    return rows * (np.array(norms) / np.sqrt((rows * rows).sum(axis=1)))[:, None]


def at_right_angles(row: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return row[[1, 0, 3, 2]] * [1, -1, 1, -1]


@pytest.mark.parametrize("others", [(1.0,), (1.0, 1.0), (0.5, 1.0, 2.0), (1.0,) * 11])
@pytest.mark.parametrize("large", [1.0, 10.0, 1000.0])
def test_one_large_row_does_not_dilute_the_error_of_another(measured, others, large):
    """However large the first row of a prompt is; with 1.0 it is as the others are."""
    baseline = rows_of(large, *others)
    target = baseline.copy()
    target[-1] = at_right_angles(target[-1])
    found = measured(baseline, target, dtype="F64")
    assert found.errors[-1, 0] == pytest.approx(np.sqrt(2))  # its norm is the largest of others
    assert not found.errors[:-1].any()


def test_nor_is_the_large_row_measured_by_the_others(measured):
    """The same step is all of an ordinary row, and a thousandth of the large one."""
    baseline = rows_of(1000, 1, 1, 1)
    target = baseline + rows_of(1, 1, 1, 1)
    assert measured(baseline, target, dtype="F64").errors[:, 0] == pytest.approx([1e-3, 1, 1, 1])


def test_of_rows_as_large_as_each_other_the_unit_is_what_a_mean_gives(measured):
    baseline = rows_of(2, 2, 2, 2)
    target = baseline + rows_of(1, 0, 0, 0.5)
    assert measured(baseline, target, dtype="F64").errors[:, 0] == pytest.approx([0.5, 0, 0, 0.25])


def test_a_single_row_is_its_own_unit(measured):
    assert measured(rows_of(8), rows_of(8) * 1.5, dtype="F64").worst == pytest.approx(0.5)


def test_zero_rows_do_not_make_the_unit_zero(measured):
    """Three of five are zero, and one is large: the root mean square is 447, the median 0."""
    baseline = rows_of(0, 1000, 0, 1, 0)
    target = baseline + rows_of(0.5, 0, 0, 0.5, 0)
    assert measured(baseline, target, dtype="F64").errors[:, 0] == pytest.approx(
        [0.5, 0, 0, 0.5, 0]
    )


def test_where_all_rows_are_zero_any_difference_is_infinite(measured):
    baseline = np.zeros((3, 2, 4))
    target = baseline.copy()
    target[1, 1, 0] = 1e-30
    found = measured(baseline, target, point=points.ATTENTION_OUTPUT, dtype="F64")
    assert np.argwhere(found.errors).tolist() == [[1, 1]]
    assert found.worst == np.inf
    assert found.relative_l2 is None


@given(
    seed=st.integers(0, 2**32 - 1),
    num_rows=st.integers(1, 16),
    zeros=st.integers(0, 15),
    decades=st.integers(0, 4),
)
def test_where_all_rows_together_are_off_one_vector_is(seed, num_rows, zeros, decades):
    """What `swarepro.compare.assess` relies on to say which rows are off."""
    rng = np.random.default_rng(seed)
    baseline = rng.normal(size=(num_rows, 2, 4))
    baseline *= 10 ** rng.uniform(-decades, decades, (num_rows, 2, 1))
    baseline[rng.permutation(num_rows)[: min(zeros, num_rows - 1)]] = 0
    errors, relative_l2 = vector_errors(baseline, baseline + rng.normal(size=baseline.shape))
    assert errors.max() * np.sqrt(2) >= relative_l2 * (1 - 1e-9)


def test_also_where_most_rows_are_zero(measured):
    """Control: by the norm of the one that is not, no zero row is off by more than 0.1."""
    baseline = rows_of(*[0] * 99, 1)
    target = baseline + rows_of(*[0.1] * 99, 0)
    found = measured(baseline, target, dtype="F64")
    assert found.relative_l2 == pytest.approx(0.1 * np.sqrt(99))
    assert found.worst == pytest.approx(0.1 / np.sqrt(1 / 100))


def test_one_bad_head_is_not_diluted_by_the_others(measured):
    rng = np.random.default_rng(0)
    baseline = rng.normal(size=(8, 16, 4)).astype(np.float32)
    target = baseline.copy()
    target[5, 11] *= -1
    found = measured(baseline, target, point=points.ATTENTION_OUTPUT)
    assert found.errors.shape == (8, 16)
    assert np.argwhere(found.errors > 0).tolist() == [[5, 11]]
    assert 1.0 < found.worst <= 2.0
    assert found.relative_l2 < 0.3


def test_a_head_of_small_values_is_measured_by_its_own(measured):
    """K and V, and heads among themselves, may be a thousand times apart."""
    baseline = np.ones((4, 2, 4))
    baseline[:, 0] *= 1000
    target = baseline.copy()
    target[2, 1] += 0.5
    assert measured(baseline, target, point=points.ATTENTION_OUTPUT).worst == pytest.approx(0.5)


def test_k_and_v_of_a_head_are_vectors_of_their_own(measured):
    rng = np.random.default_rng(0)
    baseline = rng.normal(size=(4, 2, 3, 4)).astype(np.float32)
    target = baseline.copy()
    target[1, 1, 2] += 1.0
    found = measured(baseline, target, point=points.KV_SLICE_POST_WRITE)
    assert found.errors.shape == (4, 6)
    assert np.argwhere(found.errors > 0).tolist() == [[1, 5]]


def test_bf16_is_read_exactly(measured):
    found = measured(bf16([[1.0, 2.0]]), bf16([[1.0, 2.5]]), dtype="BF16")
    assert found.worst == pytest.approx(0.5 / np.sqrt(5))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_side_alone_not_finite_is_infinite(measured, value):
    target = np.ones((2, 4))
    target[1, 3] = value
    assert measured(np.ones((2, 4)), target).worst == np.inf


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_so_is_the_baseline(measured, value):
    baseline = np.ones((2, 4))
    baseline[1, 3] = value
    assert measured(baseline, np.ones((2, 4))).worst == np.inf


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_both_sides_not_finite_alike_are_equal(measured, value):
    rows = np.ones((2, 4))
    rows[1, 3] = value
    other = rows.copy()
    other[0, 0] = 1.5
    found = measured(rows, other)
    assert found.errors[1, 0] == 0.0
    assert found.worst == 0.25


def test_rows_are_joined_over_steps(tmp_path):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(6, 4)).astype(np.float32)
    changed = rows.copy()
    changed[4] += 1
    one = Run(items=[item(points.O_PROJ, rows, layer=0)], steps=spans((0, 6)))
    many = Run(
        items=[
            item(points.O_PROJ, changed[:4], layer=0),
            item(points.O_PROJ, changed[4:], layer=0, step=1, row_start=4),
        ],
        steps=spans((0, 4), (4, 6)),
    )
    sides = one.open(tmp_path / "one"), many.open(tmp_path / "many")
    (joined,) = align_positions(*sides).joined
    found = measure_spread(*sides, joined.overlaps)
    assert np.flatnonzero(found.errors[:, 0]).tolist() == [4]
