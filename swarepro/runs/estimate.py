"""What a run will capture, known before anything runs: how much it is, and what it misses."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from swarepro import points
from swarepro.bundle.captured import captured
from swarepro.bundle.schema import CaptureEntry
from swarepro.errors import UsageError
from swarepro.points import Level
from swarepro.runtime.shapes import ExpectedTensor

_RECORD_BYTES = 450
"""Upper estimate of one line of records.jsonl."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What will be captured.

    Attributes:
        num_bytes: upper estimate of the bundle.
        unmatched: globs of the points that were asked for which match nothing that is captured, in
            the order in which they were given; at level ``off`` points are not looked at.
    """

    num_bytes: int
    unmatched: tuple[str, ...]


def estimate_capture(
    expected: Iterable[ExpectedTensor],
    capture: CaptureEntry,
    *,
    last_stage: int,
    engine: str | None = None,
) -> Estimate:
    """Say what ``capture`` takes of the tensors of a run.

    Args:
        expected: what a run of the stage runtime emits at full capture.
        capture: what is captured.
        last_stage: the stage that emits the chain's last boundary.
        engine: what runs, where it is another one: it has no points of `points.OF_AN_ENGINE`.

    Raises:
        UsageError: nothing would be captured.
    """
    records = num_bytes = 0
    names = set()
    for tensor in expected:
        if capture.steps and tensor.step not in capture.steps:
            continue
        if engine is not None and tensor.point.name in points.OF_AN_ENGINE:
            continue
        is_last = tensor.stage == last_stage
        kept = captured(capture, tensor.point, tensor.layer, last_stage=is_last)
        if kept is not None:
            records += 1
            num_bytes += tensor.num_bytes if kept == "tensor" else 0
            names.add(tensor.point.concrete(tensor.layer))
    if records == 0:
        has = "of this run" if engine is None else f"that {engine} has"
        absent = ", ".join(sorted(points.OF_AN_ENGINE))
        but = f"{engine} has all of them but {absent}, which the stage runtime has; "
        raise UsageError(
            f"nothing would be captured: level {capture.level} with points"
            f" {', '.join(capture.points)} matches no boundary {has}",
            hint=f"{'' if engine is None else but}`swarepro points` lists the boundaries and"
            " their levels",
        )
    unmatched = (
        glob for glob in capture.points if not any(fnmatchcase(name, glob) for name in names)
    )
    return Estimate(
        num_bytes=num_bytes + records * _RECORD_BYTES,
        unmatched=() if capture.level is Level.OFF else tuple(unmatched),
    )
