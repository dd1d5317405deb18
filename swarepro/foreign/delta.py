"""Whether a hidden state is the residual stream, or only what a layer added to it.

A point ``L{k+1}_input_normed`` is the norm of ``after_layer_k``: row by row a factor, column by
column a weight. A residual fits that; what a layer adds does not, but it fits the layer's own MLP
output. Both are told from the bytes alone, without the model.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from swarepro import points
from swarepro.bundle.dtypes import DTYPES
from swarepro.bundle.schema import TensorRecord
from swarepro.foreign.numbers import to_float32
from swarepro.foreign.pieces import Piece

FITS = 0.03
"""Relative misfit of a norm that was computed: 0.0016 at most in bfloat16 of Gemma 3 270M."""
FITS_NOT = 0.1
"""Above it the norm is of something else: there, of what a layer adds, it is 0.32 at least."""
_MOST_ROWS = 64
_LEAST_ROWS = 2
_LEAST_ROWS_CENTRED = 4
_MOST_WIDTH = 4096
_PASSES = 4
Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What is known of ``after_layer_k`` in one step.

    Attributes:
        layer: k.
        step: of the run.
        session: whose rows.
        is_residual: None = nothing that was dumped tells.
        why: in words.
    """

    layer: int
    step: int
    session: int
    is_residual: bool | None
    why: str


class DeltaWatch:
    """Sees the pieces of a step in execution order, and judges every ``after_layer_k``."""

    def __init__(self) -> None:
        self._mlp: dict[int, Piece] = {}
        self._after: dict[int, Piece] = {}
        self._open: dict[tuple[int, int, int], Judgement] = {}

    def see(self, piece: Piece) -> None:
        """Take the next piece."""
        record = piece.record
        if record.layer is None or record.point not in _SEEN:
            return
        if record.point == points.MLP_OUTPUT.name:
            self._mlp[record.session] = piece
        elif record.point == points.AFTER_LAYER.name:
            self._after[record.session] = piece
            self._put(record, self._against_mlp(piece))
        elif (after := self._after.get(record.session)) is not None:
            layer = after.record.layer
            same_step = after.record.step == record.step
            if same_step and layer == record.layer - 1 and self._is_open(after.record):
                self._put(after.record, _against_norm(after, piece))

    def judgements(self) -> tuple[Judgement, ...]:
        """Return one for every ``after_layer_k`` that was seen."""
        return tuple(self._open.values())

    def _put(self, record: TensorRecord, found: tuple[bool | None, str]) -> None:
        key = record.step, record.session, record.layer or 0
        self._open[key] = Judgement(
            layer=record.layer or 0,
            step=record.step,
            session=record.session,
            is_residual=found[0],
            why=found[1],
        )

    def _is_open(self, record: TensorRecord) -> bool:
        return self._open[record.step, record.session, record.layer or 0].is_residual is not False

    def _against_mlp(self, after: Piece) -> tuple[bool | None, str]:
        mlp = self._mlp.get(after.record.session)
        here = after.record.step, after.record.layer
        if mlp is None or (mlp.record.step, mlp.record.layer) != here:
            return None, "neither the layer's MLP output nor the next layer's norm was dumped"
        name = mlp.record.name
        if (mlp.record.digest, mlp.record.shape) == (after.record.digest, after.record.shape):
            return False, f"it has the bytes of {name}"
        left, right = _values(mlp), _values(after)
        if left is None or right is None or left.shape != right.shape:
            return None, f"{name} tells nothing"
        misfit = _scaled_misfit(left, right)
        if misfit is not None and misfit < FITS:
            return False, f"it is {name} times a factor of each row and a weight of each column"
        return None, f"it is not {name} alone, and the next layer's norm was not dumped"


_SEEN = frozenset(
    point.name for point in (points.MLP_OUTPUT, points.AFTER_LAYER, points.INPUT_NORMED)
)


def _against_norm(after: Piece, normed: Piece) -> tuple[bool | None, str]:
    name = normed.record.name
    left, right = _values(after), _values(normed)
    if left is None or right is None or left.shape != right.shape:
        return None, f"{name} cannot be compared with it"
    misfits = [_scaled_misfit(left, right), _centred_misfit(left, right)]
    known = [misfit for misfit in misfits if misfit is not None]
    if not known:
        return None, f"too few different rows to compare {name} with it"
    best = min(known)
    if best < FITS:
        return True, f"{name} is its norm"
    if best > FITS_NOT:
        return False, f"{name} is not its norm (relative misfit {best:.2g})"
    return None, f"{name} may be its norm (relative misfit {best:.2g})"


def _values(piece: Piece) -> Values | None:
    """Return the first `_MOST_ROWS` rows and `_MOST_WIDTH` columns; None unless all are finite."""
    array, record = piece.array, piece.record
    if array is None or array.ndim != 2 or not DTYPES[record.dtype].is_float:
        return None
    if record.dtype in ("F8_E4M3", "F8_E5M2"):
        return None
    part = array[:_MOST_ROWS, :_MOST_WIDTH]
    values = to_float32(part, record.dtype).astype(np.float64)
    return values if bool(np.isfinite(values).all()) else None


def _different_rows(values: Values) -> int:
    return len(np.unique(values, axis=0)) if values.size else 0


def _scaled_misfit(source: Values, result: Values) -> float | None:
    """Return how far ``result[t, e]`` is from ``source[t, e] * s[t] * w[e]``, relative; or None."""
    if _different_rows(source) < _LEAST_ROWS or not result.any():
        return None
    norms = np.sqrt((source**2).mean(axis=1, keepdims=True))
    factors = 1.0 / np.where(norms > 0, norms, 1.0)
    weights = np.ones(source.shape[1])
    for _ in range(_PASSES):
        scaled = source * factors
        weights = _ratio((scaled * result).sum(axis=0), (scaled**2).sum(axis=0))
        weighted = source * weights
        factors = _ratio((weighted * result).sum(axis=1), (weighted**2).sum(axis=1))[:, None]
    return _relative(source * factors * weights - result, result)


def _centred_misfit(source: Values, result: Values) -> float | None:
    """Return the same for a layer norm: rows centred and scaled, then a weight and a bias."""
    if _different_rows(source) < _LEAST_ROWS_CENTRED or not result.any():
        return None
    centred = source - source.mean(axis=1, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=1, keepdims=True))
    scaled = centred / np.where(spread > 0, spread, 1.0)
    about = scaled - scaled.mean(axis=0)
    target = result - result.mean(axis=0)
    weights = _ratio((about * target).sum(axis=0), (about**2).sum(axis=0))
    return _relative(about * weights - target, result)


def _ratio(top: Values, bottom: Values) -> Values:
    return np.asarray(top / np.where(bottom > 0, bottom, 1.0))


def _relative(difference: Values, of: Values) -> float:
    return float(np.sqrt((difference**2).sum()) / np.sqrt((of**2).sum()))
