"""What is wrong in a run by itself, whatever a floor says: no number is asked."""

from collections.abc import Sequence
from math import inf
from typing import Literal

from swarepro.bundle.read import Bundle
from swarepro.bundle.schema import TensorRecord
from swarepro.compare.assessment import Measured
from swarepro.compare.choices import Choice, against_logits
from swarepro.compare.names import shown_names
from swarepro.compare.rereads import changed_rows
from swarepro.compare.rows import end_of

Found = tuple[int, Measured]
"""The place in the baseline's execution order, and what is wrong there."""


def wrong_by_itself(baseline: Bundle, target: Bundle) -> list[Found]:
    """Return what no other run is needed for.

    These are rows that the target reads otherwise than it wrote them, and tokens of either run that
    were chosen against its own logits.

    Raises:
        BundleError: a tensor is not what its record says.
    """
    names, target_names = shown_names(baseline.records), shown_names(target.records)
    found = []
    for again in changed_rows(target):
        place, _ = _reached(baseline, again.record, end_of(again.record))
        found.append(
            (place, measured_exactly(again.record, target_names, again.positions, reread=True))
        )
    for choice in against_logits(baseline):
        found.append((choice.record.index, _choice(choice, names, "baseline")))
    for choice in against_logits(target):
        place, step = _reached(baseline, choice.record, choice.position + 1)
        found.append((place, _choice(choice, target_names, "target", step=step)))
    return found


def no_measure(baseline: Bundle) -> list[Found]:
    """Return where the baseline reads rows otherwise than it wrote them: nothing is held to these.

    Raises:
        BundleError: a tensor is not what its record says.
    """
    names = shown_names(baseline.records)
    reason = "the baseline reads rows otherwise than it wrote them: it is no measure"
    return [
        (again.record.index, measured_exactly(again.record, names, again.positions, reason=reason))
        for again in changed_rows(baseline)
    ]


def _reached(baseline: Bundle, theirs: TensorRecord, end: int) -> tuple[int, int]:
    """Return where the baseline reaches the row before ``end`` of the target's record, or ends."""
    for record in baseline.records:
        place = record.name, record.session
        if place == (theirs.name, theirs.session) and end_of(record) >= end:
            return record.index, record.step
    return len(baseline.records), theirs.step


def _choice(
    choice: Choice,
    names: Sequence[str],
    side: Literal["baseline", "target"],
    *,
    step: int | None = None,
) -> Measured:
    reason = f"in the {side}, the token is not the largest of its own logits"
    return measured_exactly(choice.record, names, (choice.position,), reason=reason, step=step)


def measured_exactly(
    record: TensorRecord,
    names: Sequence[str],
    positions: tuple[int, ...],
    *,
    reread: bool = False,
    reason: str | None = None,
    step: int | None = None,
) -> Measured:
    """Return what is told of rows of ``record`` at ``positions`` that no floor excuses.

    Args:
        record: that shows them.
        names: of its run's boundaries, by the index of their record.
        positions: ascending.
        reread: see `Measured`.
        reason: likewise.
        step: None = the record's.
    """
    return Measured(
        step=record.step if step is None else step,
        session=record.session,
        name=names[record.index],
        point=record.point,
        layer=record.layer,
        kind=record.kind,
        worst=inf,
        relative_l2=None,
        cosine=None,
        limit=0.0,
        limit_l2=0.0,
        reread=reread,
        reason=reason,
        positions=positions,
        num_rows=record.shape[0],
    )
