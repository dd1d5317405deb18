"""Tokens that a run chose against its own logits: no noise chooses what is not the largest."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from swarepro import points
from swarepro.bundle.dtypes import DTYPES
from swarepro.bundle.read import Bundle
from swarepro.bundle.schema import TensorRecord
from swarepro.compare.flips import prompt_rows
from swarepro.compare.floats import to_float64

_Spot = tuple[int, int]
"""Step and session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A token that is not one of the largest of the logits of its row.

    Attributes:
        record: of the token, or of the logits where the token was not captured.
        position: of the row.
        token: that was chosen.
    """

    record: TensorRecord
    position: int
    token: int


def against_logits(bundle: Bundle) -> Iterator[Choice]:
    """Yield, in execution order, every token that is not one of the largest of its own logits.

    A run of ours is greedy, whatever computes it; how another engine sampled an imported run,
    nobody knows. Of several largest any may be chosen. Rows that are not numbers are left to the
    comparison of the logits.

    Raises:
        BundleError: a tensor is not what its record says.
    """
    if "imported" in bundle.manifest.case:
        return
    told = _told(bundle)
    captured = {
        (record.step, record.session): record
        for record in bundle.records
        if record.point == points.TOKEN.name and record.file is not None
    }
    for logits in bundle.records:
        if logits.point != points.LOGITS.name or logits.file is None or logits.row_start is None:
            continue
        spot = logits.step, logits.session
        record = captured.get(spot)
        token = told.get(spot) if record is None else int(bundle.tensor(record).reshape(-1)[-1])
        if token is None:
            continue
        values = to_float64(bundle.tensor(logits), DTYPES[logits.dtype])[-1]
        if np.isnan(values).any():
            continue
        if not (0 <= token < len(values) and values[token] == values.max()):
            yield Choice(
                record=logits if record is None else record,
                position=logits.row_start + logits.shape[0] - 1,
                token=token,
            )


def _told(bundle: Bundle) -> dict[_Spot, int]:
    """Return the tokens that the manifest says, by the step that chose them.

    A step chooses one for each session whose prompt it ends or continues; where there are not as
    many of either, nobody knows which is whose.
    """
    manifest = bundle.manifest
    found: dict[_Spot, int] = {}
    for session, tokens in enumerate(manifest.tokens):
        rows = prompt_rows(manifest, session)
        steps = [
            step.index
            for step in manifest.steps
            for span in step.spans
            if span.session == session and span.end >= rows
        ]
        if len(steps) == len(tokens):
            found |= {(step, session): token for step, token in zip(steps, tokens, strict=True)}
    return found
