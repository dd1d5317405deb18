"""Whether two runs can part at all, and the boundary where they do first."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from swarepro.bundle.read import Bundle
from swarepro.bundle.schema import Manifest
from swarepro.compare.assess import assess_bundles
from swarepro.compare.divergence import compare_bundles
from swarepro.compare.flips import check_prompts
from swarepro.compare.floor import Floor
from swarepro.compare.names import shown_names, told_apart
from swarepro.errors import IncomparableError


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """The boundary that is to be explained.

    Attributes:
        step: where it is.
        session: whose rows it holds.
        name: of its records.
        mark: what tells it from others of its step, name and session, see `swarepro.compare.names`.
        shown: how users see it, with ``#N`` for a later one in the step.
        position: of its first row that is off, where steps are not those of both runs.
    """

    step: int
    session: int
    name: str
    mark: int
    shown: str
    position: int | None = None


def check_same_subject(baseline: Manifest, target: Manifest) -> None:
    """Raise IncomparableError where two runs compute things that have nothing in common.

    A path does not say which model lies there: two of them may lead to the same weights, and what
    is left to tell them apart are the layers.
    """
    models = baseline.model, target.model
    if models[0] != models[1] and any(name.startswith("synthetic:") for name in models):
        raise IncomparableError(
            f"the runs are of other models, {models[0]} against {models[1]}: no defect explains"
            " that their values differ",
            hint="give two runs of one model",
        )
    layers = baseline.num_layers, target.num_layers
    if layers[0] != layers[1]:
        raise IncomparableError(
            f"the runs are of other models, of {layers[0]} and of {layers[1]} layers: {models[0]}"
            f" against {models[1]}",
            hint="give two runs of one model",
        )
    check_prompts(baseline, target)


def first_parting(
    baseline: Bundle, target: Bundle, floor: Floor | None, path: Path | None
) -> Parting:
    """Return where the runs part first.

    Raises:
        IncomparableError: they do not, or nobody can tell without a floor.
    """
    if floor is not None and path is not None:
        found = assess_bundles(baseline, target, floor, path=path)
        if found.reason is not None:
            raise IncomparableError(
                f"{path} does not judge the runs: {found.reason}",
                hint="capture tensors (--store tensor) of what the floor has, or leave out --floor",
            )
        if found.first is None:
            raise IncomparableError(
                f"there is nothing to explain: the runs are {found.verdict}",
                hint="`swarepro diff-boundaries --floor` says what differs",
            )
        first = found.first
        # Rows that are read otherwise than they were written part where they are read, not where
        # they were written; the step is the target's.
        position = None if first.reread else first.positions[0]
        sides = (target, baseline) if first.reread else (baseline, target)
        return _parting(sides, first.name, first.step, first.session, position)
    try:
        parted = compare_bundles(baseline, target).first
    except IncomparableError as error:
        raise IncomparableError(
            error.message,
            hint="measure a noise floor (`swarepro calibrate`) and give it with --floor",
        ) from None
    if parted is None:
        raise IncomparableError(
            "there is nothing to explain: no boundary differs",
            hint="give the bundle of a run that went wrong as TARGET",
        )
    if parted.reread_at is not None:
        return _parting((target,), parted.name, parted.reread_at, parted.session)
    return _parting((baseline,), parted.name, parted.step, parted.session)


def _parting(
    bundles: Sequence[Bundle],
    shown: str,
    step: int,
    session: int,
    position: int | None = None,
) -> Parting:
    """Return what a comparison shows as ``shown``, of the first of the runs that captured it."""
    name, mark = next(
        (record.name, mark)
        for bundle in bundles
        for marked in [told_apart(bundle.manifest.stages, bundle.records)]
        for seen, (record, mark) in zip(shown_names(bundle.records), marked, strict=True)
        if (seen, record.session) == (shown, session)
    )
    return Parting(step=step, session=session, name=name, mark=mark, shown=shown, position=position)
