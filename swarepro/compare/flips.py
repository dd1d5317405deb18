"""Where two runs chose another token: from there on they compute something else, and rightly so."""

from collections.abc import Mapping, Sequence
from math import inf, isnan

import numpy as np
import numpy.typing as npt

from swarepro import points
from swarepro.bundle.dtypes import DTYPES
from swarepro.bundle.read import Bundle
from swarepro.bundle.schema import Manifest, TensorRecord
from swarepro.compare.assessment import Flip
from swarepro.compare.floats import to_float64
from swarepro.compare.rows import Overlap
from swarepro.compare.steps import phase_of
from swarepro.errors import IncomparableError


def check_prompts(baseline: Manifest, target: Manifest) -> None:
    """Raise IncomparableError where a session was given other prompts in the two runs."""
    prompts = zip(baseline.prompts, target.prompts, strict=False)
    for session, (prompt, other) in enumerate(prompts):
        # A capture of another program need not say what its prompt was.
        if prompt and other and prompt != other:
            raise IncomparableError(
                f"session {session} has other prompts in the two runs: their values have nothing"
                " in common",
                hint="run both with the same tokens",
            )


def find_flips(baseline: Bundle, target: Bundle) -> tuple[Flip, ...]:
    """Return the first token of each session that differs, with what the logits say of it.

    Raises:
        IncomparableError: the sessions were given other prompts.
    """
    left, right = baseline.manifest, target.manifest
    check_prompts(left, right)
    found = []
    for session, (prompt, other_prompt, mine, theirs) in enumerate(
        zip(left.prompts, right.prompts, left.tokens, right.tokens, strict=False)
    ):
        for index, (own, other) in enumerate(zip(mine, theirs, strict=False)):
            if own != other:
                rows = len(prompt or other_prompt) or prompt_rows(left, session)
                position = rows + index - 1
                found.append(_flip(baseline, target, session, position, own, other))
                break
    return tuple(found)


def prompt_rows(manifest: Manifest, session: int) -> int:
    """Return how long a session's prompt is, though only its steps may be known."""
    if manifest.prompts[session]:
        return len(manifest.prompts[session])
    ends = (
        span.end
        for step in manifest.steps
        for span in step.spans
        if span.session == session and phase_of(step, span) == "prefill"
    )
    return max(ends, default=0)


def first_other_input(flips: Sequence[Flip]) -> Mapping[int, int]:
    """Return by session the first position whose row has another input in the two runs."""
    return {flip.session: flip.position + 1 for flip in flips}


def until(parts: Sequence[Overlap], end: int | None) -> tuple[Overlap, ...]:
    """Return the rows of ``parts`` at positions below ``end``; None = all."""
    if end is None:
        return tuple(parts)
    return tuple(
        Overlap(
            baseline=part.baseline,
            baseline_row=part.baseline_row,
            target=part.target,
            target_row=part.target_row,
            num_rows=min(part.num_rows, end - part.position),
            position=part.position,
        )
        for part in parts
        if part.position < end
    )


def _flip(
    baseline: Bundle, target: Bundle, session: int, position: int, own: int, other: int
) -> Flip:
    records = [_logits(bundle, session, position) for bundle in (baseline, target)]
    rows = [
        None
        if record is None or record.file is None
        else to_float64(bundle.tensor(record), DTYPES[record.dtype])[0]
        for bundle, record in zip((baseline, target), records, strict=True)
    ]
    gaps = [None if row is None else _gap(row, own, other) for row in rows]
    left, right = rows
    apart = None
    if left is not None and right is not None and left.shape == right.shape:
        with np.errstate(invalid="ignore"):
            apart = _largest(right - left)
    first, second = records
    equal = None
    if first is not None and second is not None and first.algorithm == second.algorithm:
        equal = (first.digest, first.dtype) == (second.digest, second.dtype)
    return Flip(
        session=session,
        position=position,
        baseline=own,
        target=other,
        baseline_gap=gaps[0],
        target_gap=gaps[1],
        apart=apart,
        equal=equal,
    )


def _logits(bundle: Bundle, session: int, position: int) -> TensorRecord | None:
    for record in bundle.records:
        if (record.point, record.session, record.row_start) == (
            points.LOGITS.name,
            session,
            position,
        ):
            return record
    return None


def _gap(row: npt.NDArray[np.float64], own: int, other: int) -> float | None:
    """Return by how much the logit of ``own`` is above that of ``other``; None: nobody can say.

    A dump's token may lie outside of its logits, and two infinities or a NaN have no difference.
    """
    if max(own, other) >= len(row):
        return None
    if row[own] == row[other]:
        return 0.0
    gap = float(row[own] - row[other])
    return None if isnan(gap) else gap


def _largest(differences: npt.NDArray[np.float64]) -> float:
    """Return the largest magnitude; a NaN, of infinities too, is no difference that counts."""
    return float(np.nan_to_num(np.abs(differences), nan=0.0, posinf=inf).max(initial=0.0))
