"""Which keys a query saw: solved for from what attention gave, without knowing the model.

The scale of the scores (and a softcap, where there is one) is fitted on the first rows of the
baseline: they are shorter than any window, so they see all before them. Then each consecutive range
of keys is tried for a query, of the target and of the baseline: with the sums of ``exp(score) v``
taken from the end, all ranges that end at one key cost no more than one of them.
"""

from dataclasses import dataclass
from math import inf, isfinite

import numpy as np
import numpy.typing as npt

_Values = npt.NDArray[np.float64]

_CAPS = (None, 50.0)
"""Softcaps of attention scores that there are: none, and Gemma 2's."""
_GRID = np.geomspace(1e-3, 4.0, 80)
_FITTED = 7
"""Rows of the baseline that the scale is fitted on; no model has a window this short."""
_SHORT = 256
_BLOCK = 1 << 16
"""Values of attention outputs that are tried at a time: they stay in the processor's cache."""
_BETTER = 0.98
"""A range that ends further from the query has to fit so much better."""
_CLOSE = 0.05
"""Relative error up to which a range is what a query saw; others are off by ten times that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Inputs and outputs of one attention call, by position.

    Attributes:
        q: ``[P, H, D]``, rotated.
        k: ``[P, K, D]``, rotated.
        v: ``[P, K, D]``.
        out: ``[P, H, D]`` of the run whose inputs these are.
    """

    q: _Values
    k: _Values
    v: _Values
    out: _Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The keys ``[first, last]`` that a query saw."""

    first: int
    last: int


class KeySolver:
    """Finds ranges of keys.

    Args:
        heads: of the baseline, rows being positions 0, 1, 2, ...

    Attributes:
        fits: whether a scale was found that gives the baseline's own output.
    """

    def __init__(self, heads: Heads) -> None:
        self._heads = heads
        self._scale, self._cap, error = self._fit()
        self.fits = error < _CLOSE

    def seen(self, position: int, out: _Values) -> Seen | None:
        """Return what the query at ``position`` saw if it gave ``out [H, D]``; None = no range.

        A range ends at any key up to two behind the query's own, in a long run at most two beside
        it. Of several that fit alike the longest is returned.
        """
        best, found = inf, None
        with np.errstate(over="ignore"):
            norm = float(np.sqrt((out * out).sum())) or 1.0
        if not isfinite(norm):
            return None
        end = min(position + 3, len(self._heads.k))
        start = 0 if end <= _SHORT else max(0, position - 2)
        for last in sorted(range(start, end), key=lambda last: abs(last - position)):
            errors = self._errors(position, last, out) / norm
            first = int(errors.argmin())
            if errors[first] < best * _BETTER:
                best, found = float(errors[first]), (first, last)
        if found is None or best > _CLOSE:
            return None
        return Seen(first=found[0], last=found[1])

    def _scores(self, position: int, last: int, scale: float, cap: float | None) -> _Values:
        """Return ``[last + 1, H]``; query head h is with kv head ``h // (H / K)``."""
        k, q = self._heads.k[: last + 1], self._heads.q[position]
        by_kv_head = k.transpose(1, 2, 0), q.reshape(k.shape[1], -1, k.shape[2])
        scores: _Values = scale * (by_kv_head[1] @ by_kv_head[0]).reshape(len(q), -1).T
        return scores if cap is None else np.asarray(cap * np.tanh(scores / cap))

    def _errors(self, position: int, last: int, out: _Values) -> _Values:
        """Return how far the output of keys ``[first, last]`` is from ``out``, for every first.

        A block of keys at a time, from the last one: what all of them give is never in memory.
        """
        scores = self._scores(position, last, self._scale, self._cap)
        weights = np.exp(scores - scores.max(axis=0))
        errors = np.empty(last + 1)
        sums, total = np.zeros_like(out), np.zeros(len(out))
        height = max(1, _BLOCK // out.size)
        with np.errstate(over="ignore", invalid="ignore"):  # a baseline may hold anything
            for stop in range(last + 1, 0, -height):
                start = max(0, stop - height)
                own = weights[start:stop][::-1]
                tried = self._weighted(own, self._heads.v[start:stop][::-1])
                for row in tried:  # ten times as fast as np.cumsum along the first dimension
                    row += sums
                    sums = row
                totals = total + np.cumsum(own, axis=0)
                sums, total = sums.copy(), totals[-1]
                tried /= np.where(totals > 0, totals, 1.0)[:, :, None]
                tried -= out
                errors[start:stop] = np.sqrt(np.einsum("chd,chd->c", tried, tried))[::-1]
        errors[np.isnan(errors)] = inf
        return errors

    @staticmethod
    def _weighted(weights: _Values, v: _Values) -> _Values:
        """Return the values ``v [C, K, D]`` times ``weights [C, H]``, ``[C, H, D]``."""
        keys, kv_heads, head_dim = v.shape
        by_kv_head = weights.reshape(keys, kv_heads, -1, 1) * v[:, :, None, :]
        return by_kv_head.reshape(keys, -1, head_dim)

    def _fit(self) -> tuple[float, float | None, float]:
        """Return the scale and softcap that give the baseline's own output, and the error left."""
        chosen = list(range(1, min(_FITTED, self._heads.q.shape[0])))
        best: tuple[float, float | None, float] = (1.0, None, inf)
        for cap in _CAPS:
            grid = _GRID
            for _ in range(3):
                errors = [self._error(chosen, float(scale), cap) for scale in grid]
                at = int(np.argmin(errors))
                if errors[at] < best[2]:
                    best = float(grid[at]), cap, errors[at]
                low, high = grid[max(0, at - 1)], grid[min(len(grid) - 1, at + 1)]
                grid = np.geomspace(low, high, 20)
        return best

    def _error(self, rows: list[int], scale: float, cap: float | None) -> float:
        wrong = whole = 0.0
        for position in rows:
            scores = self._scores(position, position, scale, cap)
            weights = np.exp(scores - scores.max(axis=0))
            out = self._weighted(weights, self._heads.v[: position + 1]).sum(axis=0)
            out /= weights.sum(axis=0)[:, None]
            wrong += float(((out - self._heads.out[position]) ** 2).sum())
            whole += float((self._heads.out[position] ** 2).sum())
        return float(np.sqrt(wrong / whole)) if whole else inf
