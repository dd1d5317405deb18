"""How far the log-probability of a prediction moves between two runs: the unit of drift reports."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from swarepro import points
from swarepro.bundle.dtypes import DTYPES
from swarepro.bundle.read import Bundle
from swarepro.compare.assessment import Drift
from swarepro.compare.floats import to_float64
from swarepro.compare.rows import Overlap
from swarepro.compare.windows import windows


def largest_drift(
    baseline: Bundle, target: Bundle, joined: Iterable[Sequence[Overlap]]
) -> Drift | None:
    """Return the row of logits at which the baseline's most probable token moves most.

    Args:
        baseline: whose token it is.
        target: the other run.
        joined: rows by position; those that are no logits, or of two vocabularies, are left out.

    Returns:
        None where no row of logits is stored on both sides, or none gives probabilities: one NaN,
        or a logit of plus infinity.
    """
    found = [
        drift
        for parts in joined
        for part in parts
        if part.baseline.point == points.LOGITS.name and part.baseline.file and part.target.file
        if part.baseline.shape[1:] == part.target.shape[1:]
        for drift in _rows(baseline, target, part)
    ]
    return max(found, key=lambda drift: abs(drift.moved), default=None)


def _rows(baseline: Bundle, target: Bundle, part: Overlap) -> Iterable[Drift]:
    dtypes = DTYPES[part.baseline.dtype], DTYPES[part.target.dtype]
    for start, *sides in windows(baseline, target, part):
        b, t = (
            _log_softmax(to_float64(side, dtype)) for side, dtype in zip(sides, dtypes, strict=True)
        )
        for row, (mine, theirs) in enumerate(zip(b, t, strict=True)):
            if np.isnan(mine).any() or np.isnan(theirs).any():
                continue
            token = int(mine.argmax())
            chances = np.exp(mine)
            likely = chances > 0  # not a token that a sampler masks, or that is too far off
            apart = chances[likely] @ (mine[likely] - theirs[likely])
            yield Drift(
                session=part.baseline.session,
                position=part.position + start + row,
                token=token,
                moved=float(theirs[token] - mine[token]),
                kl=max(0.0, float(apart)),
            )


def _log_softmax(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return log-probabilities of logits ``[rows, vocabulary]``, in nat."""
    with np.errstate(invalid="ignore"):
        shifted = logits - logits.max(axis=-1, keepdims=True)
        total: npt.NDArray[np.float64] = np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
        return np.asarray(shifted - total)
