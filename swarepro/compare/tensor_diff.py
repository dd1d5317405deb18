"""Numbers about one pair of tensors: bytes first, float statistics only as an addition.

Tensors are walked in blocks, so that temporaries stay small beside the tensors, and whatever is
equal byte for byte costs one comparison and one conversion.
"""

from collections.abc import Iterator
from math import prod, sqrt

import numpy as np
import numpy.typing as npt

from swarepro.bundle.dtypes import DTYPES
from swarepro.compare.floats import Array, bits, is_nonfinite, to_float64, ulp_distance
from swarepro.compare.heads import FUSED
from swarepro.compare.types import TensorDiff, Tolerance
from swarepro.points import HEAD_DIMS

BLOCK_ELEMENTS = 1 << 14
"""Elements per block: its float64 temporaries fit the second-level cache."""


class DiffAccumulator:
    """Collects one `TensorDiff` from consecutive pieces of rows.

    Args:
        dtypes: of baseline and target, safetensors' names.
        shape: of the whole tensor; rows are dimension 0.
        dims: a letter per dimension; ``H``, ``K`` or ``J`` after the first is the head dimension.
        tolerance: None = bitwise: an element is mismatched when its bytes differ.
        head_dim: of the layer, to tell heads in a fused ``Q``; None = unknown.
    """

    def __init__(
        self,
        *,
        dtypes: tuple[str, str],
        shape: tuple[int, ...],
        dims: tuple[str, ...],
        tolerance: Tolerance | None,
        head_dim: int | None = None,
    ) -> None:
        self._baseline_dtype, self._target_dtype = (DTYPES[name] for name in dtypes)
        self._shape = shape
        self._dims = dims
        self._tolerance = tolerance
        self._head_dim = head_dim
        self._num_rows = shape[0] if shape else 1
        self._inner = prod(shape[1:])
        self._row_hits = np.zeros(self._num_rows, dtype=np.bool_)
        self._column_hits = np.zeros(self._inner, dtype=np.bool_)
        self._num_mismatched = 0
        self._first: int | None = None
        self._max_ulp = 0
        self._max_abs = 0.0
        self._nonfinite = [0, 0]
        self.is_identical = True
        """Whether all bytes added so far are equal."""
        self._squares = np.zeros(4)  # baseline, target, their product, their difference

    def add(self, baseline: Array, target: Array, *, row: int) -> None:
        """Add rows ``[row, row + n)``: two arrays ``[n, ...]`` of the dtypes' views."""
        left = baseline.reshape(-1, self._inner) if self._inner else baseline.reshape(0, 0)
        right = target.reshape(-1, self._inner) if self._inner else target.reshape(0, 0)
        with np.errstate(all="ignore"):  # infinities and overflow are what we look at
            for rows, columns in _blocks(*left.shape):
                self._add_block(
                    left[rows, columns],
                    right[rows, columns],
                    row=row + rows.start,
                    column=columns.start,
                )

    def _add_block(self, baseline: Array, target: Array, *, row: int, column: int) -> None:
        b_type, t_type = self._baseline_dtype, self._target_dtype
        same_type = b_type.name == t_type.name
        differ: npt.NDArray[np.bool_] | None = None
        if same_type:
            differ = np.asarray(bits(baseline, b_type) != bits(target, t_type))
            if not differ.any():
                self._add_equal(baseline)
                return
        self.is_identical = False
        b_bad, t_bad = is_nonfinite(baseline, b_type), is_nonfinite(target, t_type)
        self._nonfinite[0] += int(np.count_nonzero(b_bad))
        self._nonfinite[1] += int(np.count_nonzero(t_bad))
        finite = ~(b_bad | t_bad)
        all_finite = bool(finite.all())
        b_values, t_values = to_float64(baseline, b_type), to_float64(target, t_type)
        difference = t_values - b_values
        exact = np.asarray(b_values == t_values)  # also infinities of one sign, and both zeros
        self._add_numbers(b_values, t_values, difference, None if all_finite else finite)
        if same_type and b_type.is_float:
            ulps = ulp_distance(baseline, target, b_type)
            if not all_finite:
                ulps[~finite] = 0
            self._max_ulp = max(self._max_ulp, int(ulps.max()))
        else:
            ulps = None
        if self._tolerance is None or not (b_type.is_float and t_type.is_float):
            mismatched = ~exact if differ is None else differ
        else:
            mismatched = ~_passes(self._tolerance, b_values, difference, ulps, finite)
            mismatched &= ~exact
            if not all_finite:
                mismatched &= ~(np.isnan(b_values) & np.isnan(t_values))
        self._mark(mismatched, row=row, column=column)

    def _add_equal(self, values: Array) -> None:
        dtype = self._baseline_dtype
        if dtype.is_float:
            bad = is_nonfinite(values, dtype)
            count = int(np.count_nonzero(bad))
            self._nonfinite[0] += count
            self._nonfinite[1] += count
            flat = to_float64(values, dtype).reshape(-1)
            if count:
                flat[bad.reshape(-1)] = 0.0
        else:
            flat = to_float64(values, dtype).reshape(-1)
        self._squares[:3] += _dot(flat, flat)

    def _add_numbers(
        self,
        baseline: npt.NDArray[np.float64],
        target: npt.NDArray[np.float64],
        difference: npt.NDArray[np.float64],
        finite: npt.NDArray[np.bool_] | None,
    ) -> None:
        if finite is not None:
            baseline, target, difference = baseline[finite], target[finite], difference[finite]
        if baseline.size == 0:
            return
        b, t, d = baseline.reshape(-1), target.reshape(-1), difference.reshape(-1)
        self._squares += (_dot(b, b), _dot(t, t), _dot(b, t), _dot(d, d))
        self._max_abs = max(self._max_abs, float(d.max()), -float(d.min()))

    def _mark(self, mismatched: npt.NDArray[np.bool_], *, row: int, column: int) -> None:
        count = int(np.count_nonzero(mismatched))
        if count == 0:
            return
        self._num_mismatched += count
        num_rows, num_columns = mismatched.shape
        self._row_hits[row : row + num_rows] |= mismatched.any(axis=1)
        self._column_hits[column : column + num_columns] |= mismatched.any(axis=0)
        if self._first is None:
            first_row, first_column = divmod(int(mismatched.reshape(-1).argmax()), num_columns)
            self._first = (row + first_row) * self._inner + column + first_column

    def finish(self, *, positions: npt.NDArray[np.int64] | None) -> TensorDiff:
        """Return the numbers.

        Args:
            positions: logical position of each row, or None where rows are not positions.
        """
        rows = np.flatnonzero(self._row_hits) if self._shape else np.zeros(0, dtype=np.int64)
        heads, num_heads = self._heads()
        baseline, target, product, difference = (float(value) for value in self._squares)
        norms = sqrt(baseline) * sqrt(target)
        return TensorDiff(
            num_elements=prod(self._shape),
            num_mismatched=self._num_mismatched,
            first_mismatch=self._first_index(),
            max_ulp=self._ulp_or_none(),
            max_abs=self._max_abs,
            relative_l2=sqrt(difference) / sqrt(baseline) if baseline > 0.0 else None,
            cosine=min(1.0, max(-1.0, product / norms)) if norms > 0.0 else None,
            nonfinite_baseline=self._nonfinite[0],
            nonfinite_target=self._nonfinite[1],
            num_rows=self._num_rows if self._shape else 0,
            rows=tuple(rows.tolist()),
            positions=() if positions is None else tuple(positions[rows].tolist()),
            heads=heads,
            num_heads=num_heads,
        )

    def _first_index(self) -> tuple[int, ...]:
        if self._first is None or not self._shape:
            return ()
        return tuple(int(index) for index in np.unravel_index(self._first, self._shape))

    def _ulp_or_none(self) -> int | None:
        same = self._baseline_dtype.name == self._target_dtype.name
        return self._max_ulp if same and self._baseline_dtype.is_float else None

    def _heads(self) -> tuple[tuple[int, ...], int]:
        axis = next((i for i, dim in enumerate(self._dims) if i and dim in HEAD_DIMS), None)
        if axis is None:
            return self._fused_heads()
        hits = self._column_hits.reshape(self._shape[1:])
        others = tuple(i for i in range(hits.ndim) if i != axis - 1)
        return tuple(np.flatnonzero(hits.any(axis=others)).tolist()), self._shape[axis]

    def _fused_heads(self) -> tuple[tuple[int, ...], int]:
        width = self._head_dim
        if width is None or self._dims[1:] != (FUSED,) or self._inner % width:
            return (), 0
        hits = np.asarray(self._column_hits.reshape(-1, width).any(axis=1))
        return tuple(np.flatnonzero(hits).tolist()), len(hits)


def _blocks(num_rows: int, num_columns: int) -> Iterator[tuple[slice, slice]]:
    """Yield blocks in row-major order: whole rows where they are short, parts of one row else."""
    if num_columns == 0:
        return
    if num_columns > BLOCK_ELEMENTS:
        for row in range(num_rows):
            for start in range(0, num_columns, BLOCK_ELEMENTS):
                yield slice(row, row + 1), slice(start, start + BLOCK_ELEMENTS)
        return
    height = BLOCK_ELEMENTS // num_columns
    for row in range(0, num_rows, height):
        yield slice(row, row + height), slice(0, num_columns)


def _dot(left: npt.NDArray[np.float64], right: npt.NDArray[np.float64]) -> float:
    # Not np.dot: on blocks this small, BLAS threads that wait for a busy core cost 50 times more.
    return float(np.einsum("i,i->", left, right))


def _passes(
    tolerance: Tolerance,
    baseline: npt.NDArray[np.float64],
    difference: npt.NDArray[np.float64],
    ulps: npt.NDArray[np.uint64] | None,
    finite: npt.NDArray[np.bool_],
) -> npt.NDArray[np.bool_]:
    passes = np.abs(difference) <= tolerance.atol + tolerance.rtol * np.abs(baseline)
    if ulps is not None and tolerance.max_ulp is not None:
        passes |= ulps <= np.uint64(tolerance.max_ulp)
    return np.asarray(passes & finite)


def diff_tensors(
    baseline: Array,
    target: Array,
    *,
    dtypes: tuple[str, str],
    dims: tuple[str, ...],
    row_start: int | None = None,
    tolerance: Tolerance | None = None,
) -> TensorDiff:
    """Compare two tensors of one shape.

    Args:
        baseline: in the view of ``dtypes[0]``, as `swarepro.bundle.Bundle.tensor` returns it.
        target: likewise, of ``dtypes[1]``.
        dtypes: safetensors' names.
        dims: a letter per dimension.
        row_start: logical position of row 0, or None where rows are not positions.
        tolerance: None = bitwise.
    """
    accumulator = DiffAccumulator(
        dtypes=dtypes, shape=baseline.shape, dims=dims, tolerance=tolerance
    )
    accumulator.add(baseline, target, row=0)
    positions = None
    if row_start is not None and baseline.shape:
        positions = np.arange(row_start, row_start + baseline.shape[0], dtype=np.int64)
    return accumulator.finish(positions=positions)
