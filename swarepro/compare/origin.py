"""Marks the sources among diverged boundaries: inputs equal on both sides, output not."""

from collections.abc import Sequence

from swarepro.bundle.schema import Manifest, TensorRecord
from swarepro.compare.align import Align
from swarepro.compare.inputs import BY_STAGE, InputGraph, Place
from swarepro.compare.judge import Judged
from swarepro.compare.types import Verdict


def find_sources(
    manifest: Manifest,
    *,
    align: Align,
    identical: Sequence[TensorRecord],
    judged: Sequence[Judged],
) -> set[int]:
    """Return the ids (of the objects) of the diverged boundaries all of whose inputs are equal.

    Args:
        manifest: of the baseline, whose stages and steps the data flow follows.
        align: how boundaries were matched.
        identical: the baseline's records of identical boundaries.
        judged: all other boundaries. One that is INCOMPARABLE counts as not captured.
    """
    diverged = [item for item in judged if item.verdict is Verdict.DIVERGED]
    if not diverged:
        return set()
    sessions = {step.index: step.spans[0].session for step in manifest.steps if step.spans}

    def scope(record: TensorRecord) -> int:
        return record.step if align == "step" else record.session

    # Per boundary: its stages, and since which step each diverges (None = never).
    seen: dict[tuple[int, str], list[tuple[int, int | None]]] = {}
    for record in identical:
        seen.setdefault((scope(record), record.name), []).append((record.stage, None))
    for item in judged:
        if item.verdict is Verdict.INCOMPARABLE:
            continue
        record = item.baseline
        since = record.step if item.verdict is Verdict.DIVERGED else None
        seen.setdefault((scope(record), record.name), []).append((record.stage, since))

    def differs(place: Place) -> bool | None:
        at = place.step if align == "step" else sessions.get(place.step, -1)
        entries = seen.get((at, place.name))
        if entries is None:
            return None
        own = [since for stage, since in entries if stage == place.stage]
        if not own:
            if place.point in BY_STAGE:
                return None
            own = [entries[0][1]]
        return own[0] is not None and own[0] <= place.step

    graph = InputGraph(manifest, differs)
    return {
        id(item)
        for item in diverged
        if not graph.inherits(
            Place(
                step=item.baseline.step,
                stage=item.baseline.stage,
                point=item.baseline.point,
                layer=item.baseline.layer,
            )
        )
    }
