"""Tokens that two runs chose otherwise where no flip says so: none of a session's generated ones.

What the last row of a chunk in the middle of a prompt chooses is thrown away, and a dump may hold
other tokens than it says it generated. No later row has other inputs for it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from swarepro import points
from swarepro.bundle.read import Bundle
from swarepro.compare.assessment import Flip, Measured
from swarepro.compare.certain import measured_exactly
from swarepro.compare.flips import until
from swarepro.compare.rows import Overlap, part_at
from swarepro.compare.spread import Spread, measure_spread


def judged_tokens(
    baseline: Bundle,
    target: Bundle,
    joined: Sequence[tuple[Overlap, ...]],
    flips: Sequence[Flip],
    logits: Mapping[int, Spread | None],
    names: Sequence[str],
) -> Iterator[tuple[int, bool | None, Measured]]:
    """Judge the tokens of each session up to its flip, where they differ.

    Args:
        baseline: one run.
        target: the other.
        joined: rows by position; those that are no tokens are left out.
        flips: of the sessions.
        logits: how far apart they are, by session; a session without has none to judge by.
        names: of the baseline's boundaries, by the index of their record.

    Yields:
        The place in execution order; True where other tokens were chosen from equal logits, False
        where from others, None where nobody knows; and the numbers.
    """
    ends = {flip.session: flip.position for flip in flips}
    for overlaps in joined:
        first = overlaps[0].baseline
        parts = until(overlaps, ends.get(first.session))
        if first.point != points.TOKEN.name or all(map(_same, parts)):
            continue
        found = replace(
            measured_exactly(first, names, ()), num_rows=sum(part.num_rows for part in parts)
        )
        if not all(part.baseline.file and part.target.file for part in parts):
            yield first.index, None, found
            continue
        spread = measure_spread(baseline, target, parts)
        rows = np.flatnonzero(spread.errors.any(axis=1))
        if not rows.size:  # other bytes of the same ids
            continue
        at = part_at(parts, int(rows[0])).baseline
        other = spread.positions[rows]
        found = replace(found, step=at.step, positions=tuple(other.tolist()))
        is_above = None
        if first.session in logits:
            is_above = not _all_moved(other, logits[first.session])
        yield at.index, is_above, found


def _all_moved(positions: npt.NDArray[np.int64], logits: Spread | None) -> bool:
    """Return whether the logits differ at all of ``positions``."""
    if logits is None:
        return False
    moved = logits.positions[logits.errors.any(axis=1)]
    return bool(np.isin(positions, moved).all())


def _same(part: Overlap) -> bool:
    b, t = part.baseline, part.target
    return (b.algorithm, b.digest, b.dtype, b.shape) == (t.algorithm, t.digest, t.dtype, t.shape)
