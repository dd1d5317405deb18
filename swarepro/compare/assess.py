"""Is it wrong, or is it noise: two runs against a noise floor, row by row."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from pathlib import Path

import numpy as np

from swarepro import points
from swarepro.bundle.dtypes import DTYPES
from swarepro.bundle.read import Bundle
from swarepro.bundle.schema import Manifest
from swarepro.compare.align import align_positions, intended
from swarepro.compare.assessment import Assessment, Flip, Measured, VerdictClass
from swarepro.compare.certain import no_measure, wrong_by_itself
from swarepro.compare.drift import largest_drift
from swarepro.compare.flips import find_flips, first_other_input, until
from swarepro.compare.floor import Floor, FloorEntry, Kind, check_floor, entry_of
from swarepro.compare.growth import measure_growth, residual_streams
from swarepro.compare.heads import heads_with
from swarepro.compare.limits import MARGIN, Limits, limits_of
from swarepro.compare.names import shown_names
from swarepro.compare.other_tokens import judged_tokens
from swarepro.compare.patterns import Off, patterns
from swarepro.compare.rows import Missing, Overlap, part_at
from swarepro.compare.settings import differences
from swarepro.compare.spread import Spread, measure_spread
from swarepro.compare.steps import same_steps
from swarepro.compare.types import Tolerance
from swarepro.errors import IncomparableError, UsageError

_ANY = Tolerance(atol=inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """The rows of one boundary of one session that both runs computed from the same tokens.

    Attributes:
        parts: by position.
        spread: None where every byte is equal; its errors are all 0 where only bytes differ.
        reason: why it has none although bytes differ; else None.
    """

    parts: tuple[Overlap, ...]
    spread: Spread | None
    reason: str | None = None


def assess_bundles(
    baseline: Bundle, target: Bundle, floor: Floor, *, path: Path, margin: float = MARGIN
) -> Assessment:
    """Compare two runs against ``floor``.

    Rows are joined by position, whatever the steps, stages and slots; after a session's first
    other token its rows are left out.

    Args:
        baseline: what the other is measured against.
        target: the other.
        floor: of the same model.
        path: of the floor, for messages.
        margin: see `Assessment`.

    Raises:
        BundleError: a tensor is not what its record says.
        IncomparableError: nothing can be judged.
        UsageError: the margin is no number of 1 or more.
    """
    if not (isfinite(margin) and margin >= 1):
        raise UsageError(f"the margin must be 1 or more, not {margin}")
    check_floor(path, floor, baseline.manifest, target.manifest)
    flips = find_flips(baseline, target)
    aligned = align_positions(
        baseline, target, skip=intended(baseline.manifest, target.manifest, _ANY)
    )
    joined = [item.overlaps for item in aligned.joined]
    boundaries = list(measured_boundaries(baseline, target, joined, flips))
    if not boundaries:
        raise IncomparableError(
            "nothing to compare: no row of the two runs is at one position of one session",
            hint="capture the same points in both runs, with --store tensor",
        )
    kind = floor_kind(floor, baseline.manifest, target.manifest)
    starts = _first_differing(boundaries)
    to_the_byte = kind == "order" and same_steps(baseline.manifest, target.manifest)
    names, target_names = shown_names(baseline.records), shown_names(target.records)
    judged = [
        _judge(
            boundary,
            names[boundary.parts[0].baseline.index],
            entry_of(floor, boundary.parts[0].baseline, baseline.manifest.stages),
            kind,
            margin,
            to_the_byte=to_the_byte,
            is_source=_is_first(boundary, starts),
        )
        for boundary in boundaries
        if boundary.spread is not None or boundary.reason is not None
    ]
    chosen_from = {
        b.parts[0].baseline.session: b.spread
        for b in boundaries
        if b.parts[0].baseline.point == points.LOGITS.name and b.reason is None
    }
    # Of one place, what needs no other run to be wrong says more.
    judged += [(place, True, found) for place, found in wrong_by_itself(baseline, target)]
    tokens = list(judged_tokens(baseline, target, joined, flips, chosen_from, names))
    judged += tokens
    unsteady = no_measure(baseline)
    judged += [(place, None, found) for place, found in unsteady]
    judged.sort(key=lambda item: item[0])
    above = tuple(found for _, is_above, found in judged if is_above)
    unjudged = tuple(found for _, is_above, found in judged if is_above is None)
    within = tuple(found for _, is_above, found in judged if is_above is False)
    growth = measure_growth(
        baseline,
        target,
        residual_streams([b.parts for b in boundaries if _reason(b.parts) is None]),
        {
            entry.layer: getattr(entry, f"{kind}_l2")
            for entry in floor.entries
            if entry.point == points.AFTER_LAYER.name and entry.layer is not None
        },
    )
    equal_logits = tuple(found for _, is_above, found in tokens if is_above)
    verdict = _class(above, unjudged, within, flips, equal_logits)
    reason = None
    if verdict is VerdictClass.INCOMPARABLE:
        reason = _blind(unjudged[0], boundaries, names)
    return Assessment(
        baseline=str(baseline.path),
        target=str(target.path),
        floor=str(path),
        floor_kind=kind,
        margin=margin,
        verdict=verdict,
        reason=reason,
        compared=len(boundaries),
        identical=sum(b.spread is None and b.reason is None for b in boundaries),
        first=above[0] if above else None,
        patterns=_patterns(baseline, target, above[0]) if above else (),
        above=above,
        within=within,
        unjudged=unjudged,
        unjudged_before=_unjudged_before(judged),
        flips=flips,
        drift=largest_drift(baseline, target, [boundary.parts for boundary in boundaries]),
        growth=growth,
        unsteady=tuple(found.name for _, found in unsteady),
        differences=differences(baseline.manifest, target.manifest),
        only_baseline=_one_sided(aligned.only_baseline, flips, names),
        only_target=_one_sided(aligned.only_target, flips, target_names),
        skipped=aligned.skipped,
    )


def _patterns(baseline: Bundle, target: Bundle, first: Measured) -> tuple[str, ...]:
    if first.reason is not None:
        return ()  # it is a token, whose row is no row of values
    off = Off(
        point=first.point,
        layer=first.layer,
        session=first.session,
        positions=first.positions,
        heads=first.heads,
        num_heads=first.num_heads,
    )
    return patterns(baseline, target, off)


def measured_boundaries(
    baseline: Bundle,
    target: Bundle,
    joined: list[tuple[Overlap, ...]],
    flips: tuple[Flip, ...],
) -> Iterator[Boundary]:
    """Measure every boundary over the rows before its session's first other input."""
    ends = first_other_input(flips)
    for overlaps in joined:
        parts = until(overlaps, ends.get(overlaps[0].baseline.session))
        # The row that chose another token holds that token: `flips` says what there is to say.
        if not parts or parts[0].baseline.point == points.TOKEN.name:
            continue
        if all(_is_equal(part) for part in parts):
            yield Boundary(parts=parts, spread=None)
            continue
        reason = _reason(parts)
        spread = None if reason is not None else measure_spread(baseline, target, parts)
        if spread is not None and spread.same_bytes:
            spread = None
        yield Boundary(parts=parts, spread=spread, reason=reason)


def floor_kind(floor: Floor, baseline: Manifest, target: Manifest) -> Kind:
    """Return which spread of ``floor`` holds between two runs.

    What the order of sums changes was measured on one kind of device, and holds for no other.
    """
    same = all(
        getattr(baseline.backend, name) == getattr(target.backend, name)
        for name in ("engine", "dtype", "device", "triton")
    )
    gpus = {floor.environment.gpu, baseline.environment.gpu, target.environment.gpu}
    here = floor.device == baseline.backend.device and len(gpus) == 1
    return "order" if same and here else "precision"


def _is_equal(part: Overlap) -> bool:
    """Return whether the digests tell that the rows are equal: the same ones of equal tensors."""
    b, t = part.baseline, part.target
    return part.baseline_row == part.target_row and (
        b.algorithm,
        b.digest,
        b.dtype,
        b.shape,
    ) == (t.algorithm, t.digest, t.dtype, t.shape)


def _reason(parts: tuple[Overlap, ...]) -> str | None:
    shapes = {side.shape[1:] for part in parts for side in (part.baseline, part.target)}
    if len(shapes) > 1:
        return f"rows of shape {' and '.join(str(list(shape)) for shape in sorted(shapes))}"
    for side in ("baseline", "target"):
        if len({getattr(part, side).dtype for part in parts}) > 1:
            return f"the {side}'s steps disagree about the dtype"
        if any(getattr(part, side).file is None for part in parts):
            return f"the {side} has digests only: run it with --store tensor"
    return None


def _judge(
    boundary: Boundary,
    name: str,
    entry: FloorEntry | None,
    kind: Kind,
    margin: float,
    *,
    is_source: bool,
    to_the_byte: bool,
) -> tuple[int, bool | None, Measured]:
    """Return the place in execution order, whether it is above the floor, and the numbers.

    Where the runs had to agree ``to_the_byte`` and do so until there, all rows that differ are off.
    """
    first, spread = boundary.parts[0].baseline, boundary.spread
    dtypes = first.dtype, boundary.parts[0].target.dtype
    limits = None
    if not all(DTYPES[name].is_float for name in dtypes):
        limits = Limits(worst=0.0, relative_l2=0.0)  # integers are exact
    elif entry is not None:
        limits = limits_of(entry, kind, dtypes=dtypes, is_source=is_source, margin=margin)
    found = Measured(
        step=first.step,
        session=first.session,
        name=name,
        point=first.point,
        layer=first.layer,
        kind=first.kind,
        worst=inf if spread is None else spread.worst,
        relative_l2=None if spread is None else spread.relative_l2,
        cosine=None if spread is None else spread.cosine,
        limit=None if limits is None else limits.worst,
        limit_l2=None if limits is None else limits.relative_l2,
        is_source=is_source,
        num_rows=sum(part.num_rows for part in boundary.parts),
    )
    if spread is None or limits is None:
        return first.index, None, found
    bad = spread.errors > limits.worst
    if not bad.any() and (spread.relative_l2 or 0.0) > limits.relative_l2:
        # No vector stands out, but all together are too far off: those that are off most.
        # The unit of errors is such that one is always above half the limit, see `compare.spread`.
        bad = spread.errors > limits.relative_l2 / 2
    if not bad.any():
        return first.index, False, found
    if is_source and to_the_byte:
        bad = spread.errors > 0
    rows = np.flatnonzero(bad.any(axis=1))
    at = part_at(boundary.parts, int(rows[0])).baseline
    heads, num_heads = heads_with(first.dims, first.shape, bad)
    above = replace(
        found,
        step=at.step,
        positions=tuple(spread.positions[rows].tolist()),
        heads=heads,
        num_heads=num_heads,
    )
    return at.index, True, above


def _first_differing(boundaries: Sequence[Boundary]) -> dict[int, int]:
    """Return by session where, in execution order, the first row lies that differs."""
    found: dict[int, int] = {}
    for boundary in boundaries:
        session, index = boundary.parts[0].baseline.session, _index(boundary)
        if index is not None:
            found[session] = min(index, found.get(session, index))
    return found


def _is_first(boundary: Boundary, starts: Mapping[int, int]) -> bool:
    index = _index(boundary)
    return index is not None and index == starts[boundary.parts[0].baseline.session]


def _index(boundary: Boundary) -> int | None:
    """Return the place in execution order of the first row with another value."""
    if boundary.spread is None:
        return None if boundary.reason is None else boundary.parts[0].baseline.index
    rows = np.flatnonzero(boundary.spread.errors.any(axis=1))
    return part_at(boundary.parts, int(rows[0])).baseline.index if rows.size else None


def _class(
    above: tuple[Measured, ...],
    unjudged: tuple[Measured, ...],
    within: tuple[Measured, ...],
    flips: tuple[Flip, ...],
    tokens: tuple[Measured, ...],
) -> VerdictClass:
    """Return the class; of what is ``above``, ``tokens`` were chosen from equal logits."""
    if above and above == tokens and not (unjudged or within):
        return VerdictClass.TIE
    if above:
        return VerdictClass.WRONG
    if unjudged:
        return VerdictClass.INCOMPARABLE
    if within:
        return VerdictClass.NOISE
    return VerdictClass.TIE if flips else VerdictClass.IDENTICAL


def _unjudged_before(judged: Sequence[tuple[int, bool | None, Measured]]) -> int:
    """Return how many that have no verdict come before the first above the floor."""
    verdicts = [is_above for _, is_above, _ in judged]
    return verdicts[: verdicts.index(True)].count(None) if True in verdicts else 0


def _blind(found: Measured, boundaries: Sequence[Boundary], names: Sequence[str]) -> str:
    """Say why a boundary that differs has no verdict."""
    if found.reason is not None:
        return f"{found.name} of step {found.step}: {found.reason}"
    for boundary in boundaries:
        first = boundary.parts[0].baseline
        place = names[first.index], first.session
        if boundary.reason and place == (found.name, found.session):
            return f"{found.name} of step {found.step} differs, and {boundary.reason}"
    return f"{found.name} of step {found.step} differs, and the floor says nothing of it"


def _one_sided(
    rows: tuple[Missing, ...], flips: tuple[Flip, ...], names: Sequence[str]
) -> tuple[str, ...]:
    """Return the boundaries that one side alone has, but for what lies after another token."""
    ends = first_other_input(flips)
    found = {
        names[row.record.index]: None
        for row in rows
        if row.positions is None
        or row.positions[0] < ends.get(row.record.session, row.positions[1])
    }
    return tuple(found)
