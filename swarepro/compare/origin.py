"""Marks where diverged boundaries come from: a source, inherited, or not known."""

from collections.abc import Iterable, Sequence

from swarepro.bundle.schema import Manifest, TensorRecord
from swarepro.compare.align import Align
from swarepro.compare.inputs import BY_STAGE, InputGraph, Inputs, Place
from swarepro.compare.judge import Judged
from swarepro.compare.types import Origin, Verdict


def origin_of(inputs: Inputs) -> Origin:
    """Return what a boundary with these inputs is, when it diverges."""
    if inputs.differ:
        return "inherited"
    return "unknown" if inputs.unseen else "source"


def find_inputs(
    manifest: Manifest,
    *,
    align: Align,
    identical: Sequence[TensorRecord],
    judged: Sequence[Judged],
    whole: Iterable[TensorRecord],
    ignored: frozenset[str],
) -> dict[int, Inputs]:
    """Return what is known of the inputs of every diverged boundary, by the id of the object.

    Args:
        manifest: of the baseline, whose stages and steps the data flow follows.
        align: how boundaries were matched.
        identical: the baseline's records of identical boundaries.
        judged: all other boundaries. One that is INCOMPARABLE counts as not captured.
        whole: by position, the baseline's records all of whose rows were compared.
        ignored: points that differ by intent, or that neither run has.
    """
    diverged = [item for item in judged if item.verdict is Verdict.DIVERGED]
    if not diverged:
        return {}
    complete = {(record.step, record.session, record.name, record.stage) for record in whole}

    def scope(at: TensorRecord | Place) -> tuple[int | None, int, str]:
        return (at.step if align == "step" else None, at.session, at.name)

    # Per boundary: its stages, and since which step each diverges (None = never).
    seen: dict[tuple[int | None, int, str], list[tuple[int, int | None]]] = {}
    for record in identical:
        seen.setdefault(scope(record), []).append((record.stage, None))
    for item in judged:
        if item.verdict is Verdict.INCOMPARABLE:
            continue
        record = item.baseline
        since = record.step if item.verdict is Verdict.DIVERGED else None
        seen.setdefault(scope(record), []).append((record.stage, since))

    def differs(place: Place) -> bool | None:
        entries = seen.get(scope(place))
        if entries is None:
            return None
        own = [entry for entry in entries if entry[0] == place.stage]
        if not own:
            if place.point in BY_STAGE:
                return None
            own = entries[:1]
        stage, since = own[0]
        if since is not None and since <= place.step:
            return True
        here = place.step, place.session, place.name, stage
        if align == "position" and here not in complete:
            return None
        return False

    graph = InputGraph(manifest, differs, ignored=ignored)
    return {
        id(item): graph.inputs(
            Place(
                step=item.baseline.step,
                stage=item.baseline.stage,
                session=item.baseline.session,
                point=item.baseline.point,
                layer=item.baseline.layer,
            )
        )
        for item in diverged
    }
