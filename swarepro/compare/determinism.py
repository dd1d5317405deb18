"""What varies between N repeats of one run, and what N repeats that agree do not exclude."""

from collections import Counter
from collections.abc import Sequence
from math import ceil, log, log1p

from swarepro import points
from swarepro.bundle.schema import TensorRecord
from swarepro.compare.names import ranks, shown_name
from swarepro.compare.types import BoundaryClasses, Determinism, OneSided
from swarepro.errors import IncomparableError
from swarepro.points import ExecKey, PointKind

_OUTPUTS = frozenset((points.LOGITS.name, points.BOUNDARY_SEND_HIDDEN.name))
_Boundary = tuple[int, int, str, int, int]
"""Step, stage, name, session, occurrence."""


def upper_bound(repeats: int, confidence: float = 0.95) -> float:
    """Return the rate of divergence that ``repeats`` equal repeats do not exclude.

    A run that deviates from the others at this rate still shows N equal repeats with probability
    ``1 - confidence``.
    """
    if repeats < 1:
        raise ValueError(f"no bound from {repeats} repeats")
    return float(1.0 - (1.0 - confidence) ** (1.0 / repeats))


def repeats_for(bound: float, confidence: float = 0.95) -> int:
    """Return the smallest N whose `upper_bound` is at most ``bound``."""
    if not 0.0 < bound < 1.0:
        raise ValueError(f"a rate between 0 and 1, not {bound}")
    estimate = ceil(log(1.0 - confidence) / log1p(-bound))
    # The logarithms may be off by one unit in the last place at an exact solution.
    return next(
        n for n in range(max(1, estimate - 1), estimate + 2) if upper_bound(n, confidence) <= bound
    )


def classify(
    repeats: Sequence[Sequence[TensorRecord]], tokens: Sequence[tuple[int, ...]]
) -> Determinism:
    """Group the repeats of one run by digest at every boundary.

    Args:
        repeats: the records of each repeat, in execution order.
        tokens: the generated tokens of each repeat, all sessions in order.

    Raises:
        IncomparableError: nothing was captured, so that nothing can be said.
    """
    if len(repeats) != len(tokens) or not repeats:
        raise ValueError(f"{len(repeats)} repeats with {len(tokens)} lists of tokens")
    digests, examples, names = _collect(repeats)
    if not digests:
        raise IncomparableError(
            "nothing was captured: repeats cannot be compared", hint="run with --capture op"
        )
    ordered = sorted(digests, key=lambda boundary: _key(examples[boundary]))
    found: list[BoundaryClasses] = []
    only_some: list[OneSided] = []
    deviations: Counter[int] = Counter()
    for boundary in ordered:
        record, seen = examples[boundary], digests[boundary]
        if len(seen) < len(repeats):
            only_some.append(
                OneSided(step=record.step, session=record.session, name=names[boundary])
            )
        classes = _classes(record, seen, names[boundary])
        deviations.update(classes.deviating)
        found.append(classes)
    usual = Counter(tokens).most_common(1)[0][0]
    deviations.update(index for index, generated in enumerate(tokens) if generated != usual)
    varying = [classes for classes in found if classes.distinct > 1]
    return Determinism(
        repeats=len(repeats),
        points=tuple(found),
        earliest_varying=varying[0] if varying else None,
        first_value_varying=next((item for item in varying if item.kind is PointKind.VALUE), None),
        outputs_vary=_outputs_vary(ordered, examples, found),
        tokens=tuple(tokens),
        modal_repeat=min(range(len(repeats)), key=lambda index: (deviations[index], index)),
        deviating=tuple(sorted(deviations)),
        rate_upper_bound=None if deviations or only_some else upper_bound(len(repeats)),
        only_some=tuple(only_some),
        several_sessions=len({record.session for record in examples.values()}) > 1,
    )


def _collect(
    repeats: Sequence[Sequence[TensorRecord]],
) -> tuple[
    dict[_Boundary, dict[int, tuple[str, ...]]],
    dict[_Boundary, TensorRecord],
    dict[_Boundary, str],
]:
    """Return what each repeat shows at each boundary, one record of each, and its name."""
    shown: dict[_Boundary, dict[int, tuple[str, ...]]] = {}
    examples: dict[_Boundary, TensorRecord] = {}
    names: dict[_Boundary, str] = {}
    for index, records in enumerate(repeats):
        for record, rank in zip(records, ranks(records), strict=True):
            boundary = (
                record.step,
                record.stage,
                record.name,
                record.session,
                record.occurrence,
            )
            if boundary not in examples:
                examples[boundary] = record
                names[boundary] = shown_name(record, rank)
                shown[boundary] = {}
            if index in shown[boundary]:
                raise ValueError(f"repeat {index} has {record.key} of step {record.step} twice")
            # Equal bytes in another dtype or shape are another tensor.
            shape = map(str, record.shape)
            shown[boundary][index] = (record.digest, record.algorithm, record.dtype, *shape)
    return shown, examples, names


def _classes(record: TensorRecord, seen: dict[int, tuple[str, ...]], name: str) -> BoundaryClasses:
    counts = Counter(seen.values())  # in order of the repeats, and so are ties
    modal = counts.most_common(1)[0][0]
    return BoundaryClasses(
        step=record.step,
        stage=record.stage,
        session=record.session,
        name=name,
        layer=record.layer,
        kind=record.kind,
        classes=tuple(sorted(counts.values(), reverse=True)),
        modal=modal[0],
        deviating=tuple(index for index, shows in sorted(seen.items()) if shows != modal),
    )


def _outputs_vary(
    ordered: Sequence[_Boundary],
    examples: dict[_Boundary, TensorRecord],
    found: Sequence[BoundaryClasses],
) -> tuple[int, ...]:
    last: dict[tuple[int, int], BoundaryClasses] = {}
    for boundary, classes in zip(ordered, found, strict=True):
        if examples[boundary].point in _OUTPUTS:
            last[classes.step, classes.session] = classes
    return tuple(sorted({step for (step, _), classes in last.items() if classes.distinct > 1}))


def _key(record: TensorRecord) -> ExecKey:
    return points.exec_key(
        points.by_name(record.point),
        step=record.step,
        stage=record.stage,
        layer=record.layer,
        occurrence=record.occurrence,
    )
