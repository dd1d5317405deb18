"""How far the rows of two runs are apart at one boundary, vector by vector.

A vector is what one row has in the last dimension: of a head, of K or of V where there are heads,
else of the whole row. Its error is ``norm(t - b) / max(norm(b), s)`` where ``s`` is the norm of a
typical vector of that head: a vector that happens to be near zero does not blow up, and one bad
head is not diluted by the others.

``s`` is taken over the rows of the baseline that are compared:

- It is the median of the norms. A row far larger than the others, as the first of a prompt is in
  residual streams, would make a mean so large that an ordinary row could be all wrong and count as
  noise. Of an even number it is the lower of the two in the middle: of two rows the larger one is
  no unit for the other.
- Rows that are exactly zero say nothing about what is typical, and are left out of the median.
- It is at most the root mean square of all norms, zeros too. So ``max(norm(b), s)``, squared, sums
  to at most twice what ``norm(b)`` does: where all rows together are off by ``x``, one vector is
  off by at least ``x / sqrt(2)``, however many rows are zero.
- Where all rows are zero there is no unit: any difference is infinite.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import frexp, inf, prod, sqrt

import numpy as np
import numpy.typing as npt

from swarepro.bundle.dtypes import DTYPES
from swarepro.bundle.read import Bundle
from swarepro.compare.floats import Array, to_float64
from swarepro.compare.rows import Overlap
from swarepro.compare.windows import windows

_SQUARED = 400
"""Powers of two up to this one, and down to its inverse, have squares that can be added up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The errors of one boundary.

    Attributes:
        worst: largest error of a vector; infinite where one side alone is not finite.
        relative_l2: ``norm(t - b) / norm(b)`` over all rows; None when norm(b) is 0.
        cosine: of all rows; None when one norm is 0.
        errors: ``[rows, vectors of a row]``.
        positions: ``[rows]``, the logical position of each row.
        same_bytes: whether both sides have one dtype and the same bytes. All errors may be 0
            without that: -0.0 beside 0.0, two NaNs, one value in two dtypes.
    """

    worst: float
    relative_l2: float | None
    cosine: float | None
    errors: npt.NDArray[np.float64]
    positions: npt.NDArray[np.int64]
    same_bytes: bool


def measure_spread(baseline: Bundle, target: Bundle, parts: Sequence[Overlap]) -> Spread:
    """Measure joined rows of one boundary; the tensors are checked by their digests first.

    Raises:
        BundleError: a tensor is not what its record says, or was not stored.
    """
    for bundle, records in (
        (baseline, {part.baseline.index: part.baseline for part in parts}),
        (target, {part.target.index: part.target for part in parts}),
    ):
        for record in records.values():
            bundle.check(record)
    inner = parts[0].baseline.shape[1:]
    vectors, width = (prod(inner[:-1]), inner[-1]) if inner else (1, 1)
    dtypes = DTYPES[parts[0].baseline.dtype], DTYPES[parts[0].target.dtype]
    shift = 0
    if "F64" in (dtypes[0].name, dtypes[1].name):  # squares of all others fit
        pieces = _pieces(baseline, target, parts)
        shift = _shift(
            to_float64(side, dtype)
            for sides in pieces
            for side, dtype in zip(sides, dtypes, strict=True)
        )
    apart: list[npt.NDArray[np.float64]] = []
    norms: list[npt.NDArray[np.float64]] = []
    sums = np.zeros(3)  # squares of the baseline, of the target, and their product
    same_bytes = dtypes[0] == dtypes[1]
    for mine, theirs in _pieces(baseline, target, parts):
        same_bytes = same_bytes and mine.tobytes() == theirs.tobytes()
        b, t = (
            np.ldexp(to_float64(side, dtype), shift).reshape(-1, vectors, width)
            for side, dtype in zip((mine, theirs), dtypes, strict=True)
        )
        d = _difference(b, t)
        if not (dtypes[0].is_float or dtypes[1].is_float):  # float64 does not hold every integer
            d[(mine != theirs).reshape(d.shape) & (d == 0.0)] = 1.0
        b, t = (np.where(np.isfinite(side), side, 0.0) for side in (b, t))
        apart.append(np.sqrt(np.einsum("rvw,rvw->rv", d, d)))
        norms.append(np.sqrt(np.einsum("rvw,rvw->rv", b, b)))
        sums += [float(np.einsum("rvw,rvw->", x, y)) for x, y in ((b, b), (t, t), (b, t))]
    differences = np.concatenate(apart)
    errors = _relative(differences, np.concatenate(norms))
    positions = np.concatenate(
        [np.arange(part.position, part.position + part.num_rows) for part in parts]
    )
    return Spread(
        worst=float(errors.max(initial=0.0)),
        relative_l2=_ratio(float((differences * differences).sum()), float(sums[0])),
        cosine=_cosine(*map(float, sums)),
        errors=errors,
        positions=positions,
        same_bytes=same_bytes,
    )


def _pieces(
    baseline: Bundle, target: Bundle, parts: Sequence[Overlap]
) -> Iterator[tuple[Array, Array]]:
    for part in parts:
        for _, mine, theirs in windows(baseline, target, part):
            yield mine, theirs


def _shift(arrays: Iterable[npt.NDArray[np.float64]]) -> int:
    """Return the power of two by which to multiply, so that squares neither overflow nor vanish.

    It is 0 where they do not: every quotient of sums is the same with any.
    """
    largest = 0.0
    for array in arrays:
        finite = np.abs(array[np.isfinite(array)])
        largest = max(largest, float(finite.max(initial=0.0)))
    exponent = frexp(largest)[1]
    return -exponent if abs(exponent) > _SQUARED else 0


def vector_errors(
    baseline: npt.NDArray[np.float64], target: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], float]:
    """Return errors ``[rows, vectors]`` of arrays ``[rows, ..., width]``, and the relative L2.

    The relative L2 is infinite where the baseline is 0 and the target is not.
    """
    shape = baseline.shape[0], -1, baseline.shape[-1]
    shift = _shift((baseline, target))
    b, t = (np.ldexp(side, shift).reshape(shape) for side in (baseline, target))
    d = _difference(b, t)
    b = np.where(np.isfinite(b), b, 0.0)
    differences = np.sqrt(np.einsum("rvw,rvw->rv", d, d))
    relative_l2 = _ratio(float((differences * differences).sum()), float((b * b).sum()))
    norms = np.sqrt(np.einsum("rvw,rvw->rv", b, b))
    return _relative(differences, norms), inf if relative_l2 is None else relative_l2


def _relative(
    differences: npt.NDArray[np.float64], norms: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return differences ``[rows, vectors]`` by the vector's norm, or a typical one of its head."""
    scale = np.maximum(norms, _typical(norms))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(differences == 0.0, 0.0, differences / scale)


def _typical(norms: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return ``[1, vectors]``, the ``s`` of each; 0 where all its rows are 0."""
    ascending = np.sort(norms, axis=0)
    zeros = (norms == 0.0).sum(axis=0, keepdims=True)
    middle = zeros + (len(norms) - zeros - 1) // 2  # of all zeros: the last one
    median = np.take_along_axis(ascending, middle, axis=0)
    mean_square: npt.NDArray[np.float64] = (norms * norms).mean(axis=0, keepdims=True)
    return np.minimum(median, np.sqrt(mean_square))


def _difference(
    baseline: npt.NDArray[np.float64], target: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return ``t - b``: 0 where both are the same infinity or both NaN, infinite where one is."""
    with np.errstate(invalid="ignore", over="ignore"):
        difference = target - baseline
    same = (baseline == target) | (np.isnan(baseline) & np.isnan(target))
    difference[same] = 0.0
    difference[~np.isfinite(difference)] = inf
    return difference


def _ratio(difference: float, baseline: float) -> float | None:
    if baseline > 0.0:
        return sqrt(difference / baseline)
    return 0.0 if difference == 0.0 else None


def _cosine(baseline: float, target: float, product: float) -> float | None:
    return product / (sqrt(baseline) * sqrt(target)) if baseline and target else None
