"""Reports for programs: plain data with stable keys; NaN and infinities become null."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from swarepro.bundle.schema import Manifest, StageOwnership, TensorRecord, Violation
from swarepro.compare.types import (
    BoundaryClasses,
    BoundaryDiff,
    Determinism,
    Divergence,
    OneSided,
    Tolerance,
    Verdict,
)
from swarepro.report.bound import bound_of
from swarepro.report.slots import violations_in_order

Document = dict[str, Any]

_NUMBERS = (
    "rows",
    "positions",
    "heads",
    "num_rows",
    "num_heads",
    "num_mismatched",
    "num_elements",
    "first_mismatch",
    "max_ulp",
    "max_abs",
    "relative_l2",
    "cosine",
    "nonfinite_baseline",
    "nonfinite_target",
)


def finite(value: Any) -> Any:
    """Return ``value`` with tuples as lists and every NaN or infinity as None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def run_document(
    manifest: Manifest,
    *,
    bundle: Path,
    size_bytes: int,
    texts: Sequence[str | None] = (),
    unmatched: Sequence[str] = (),
) -> Document:
    """Return what `swarepro run --json` prints; ``texts`` are the tokens as text, by session.

    ``unmatched`` are the globs of --points that match nothing that this run has.
    ``first_violation`` is the earliest of the run, with its stage, or null. Without the shadow
    nothing was checked, and it is null as well.
    """
    data = msgspec.to_builtins(manifest)
    broken = violations_in_order(manifest.ownership)
    return {
        "bundle": str(bundle),
        "run_id": manifest.run_id,
        "tokens": data["tokens"],
        "texts": list(texts),
        "steps": data["steps"],
        "final_actions": data["final_actions"],
        "points": manifest.num_records,
        "unmatched": list(unmatched),
        "size_bytes": size_bytes,
        "fill": manifest.backend.fill,
        "shadow": manifest.shadow,
        "first_violation": _violation(*broken[0]) if broken else None,
        "ownership": data["ownership"],
    }


def _violation(owned: StageOwnership, violation: Violation) -> Document:
    return {"stage": owned.stage, **msgspec.to_builtins(violation)}


def inspect_document(
    manifest: Manifest, records: Sequence[TensorRecord], *, bundle: Path, verified: int
) -> Document:
    """Return what `swarepro inspect --json` prints."""
    return {
        "bundle": str(bundle),
        "verified": verified,
        "manifest": msgspec.to_builtins(manifest),
        "records": msgspec.to_builtins(tuple(records)),
    }


def diff_document(divergence: Divergence) -> Document:
    """Return what `swarepro diff-boundaries --json` prints.

    ``origin`` is ``source`` (all inputs were judged equal), ``inherited`` (a captured one differs),
    ``unknown`` (no captured one differs, yet not all were captured and judged), or null where the
    boundary has not diverged. ``bound`` of a milestone is ``exact`` or ``here-or-before``.
    ``positions`` of what is one-sided are ``[start, end)`` of its rows; null = a whole boundary.
    ``last_step`` is the last that both runs have where one goes further, else null. ``reread_at``
    is the target's step that shows rows of a pool otherwise than it wrote them, or null; of
    ``rereads`` slices it was checked, on both sides, that they do not. ``unsteady`` are boundaries
    where the baseline itself does.
    """
    return {
        "verdict": str(divergence.verdict),
        "baseline": divergence.baseline,
        "target": divergence.target,
        "differences": list(divergence.differences),
        "align": divergence.align,
        "tolerance": _tolerance(divergence.tolerance),
        "compared": divergence.compared,
        "diverging": sum(b.verdict is Verdict.DIVERGED for b in divergence.boundaries),
        "tensors_opened": divergence.tensors_opened,
        "verified": divergence.verified,
        "tokens_differ": divergence.tokens_differ,
        "last_step": divergence.last_step,
        "rereads": divergence.rereads,
        "unsteady": list(divergence.unsteady),
        "first": _milestone(divergence, divergence.first),
        "first_state": _milestone(divergence, divergence.first_state),
        "first_value": _milestone(divergence, divergence.first_value),
        "last_identical": _boundary(divergence.last_identical),
        "boundaries": [_boundary(boundary) for boundary in divergence.boundaries],
        "only_baseline": [_one_sided(point) for point in divergence.only_baseline],
        "only_target": [_one_sided(point) for point in divergence.only_target],
        "skipped": list(divergence.skipped),
        "patterns": list(divergence.patterns),
    }


def determinism_document(
    result: Determinism, *, ownership: Sequence[StageOwnership] = (), kept: Sequence[Path]
) -> Document:
    """Return what `swarepro determinism --json` prints; ``ownership`` is the modal repeat's."""
    return {
        "verdict": result.verdict,
        "repeats": result.repeats,
        "points": len(result.points),
        "varying": sum(point.distinct > 1 for point in result.points),
        "earliest_varying": _point(result.earliest_varying),
        "first_value_varying": _point(result.first_value_varying),
        "outputs_vary": list(result.outputs_vary),
        "deviating": list(result.deviating),
        "modal_repeat": result.modal_repeat,
        "rate_upper_bound": result.rate_upper_bound,
        "tokens": [list(tokens) for tokens in result.tokens],
        "distinct": [_classes(point) for point in result.points],
        "ownership": msgspec.to_builtins(ownership),
        "kept": [str(path) for path in kept],
    }


def _tolerance(tolerance: Tolerance | None) -> Document | None:
    if tolerance is None:
        return None
    if tolerance.max_ulp is not None:
        return {"max_ulp": tolerance.max_ulp}
    return {"atol": tolerance.atol, "rtol": tolerance.rtol}


def _boundary(boundary: BoundaryDiff | None) -> Document | None:
    if boundary is None:
        return None
    return {
        "step": boundary.step,
        "session": boundary.session,
        "name": boundary.name,
        "layer": boundary.layer,
        "kind": str(boundary.kind),
        "stage": boundary.stage,
        "verdict": str(boundary.verdict),
        "origin": boundary.origin,
        "reason": boundary.reason,
        "reread_at": boundary.reread_at,
    }


def _milestone(divergence: Divergence, boundary: BoundaryDiff | None) -> Document | None:
    head = _boundary(boundary)
    if boundary is None or head is None:
        return None
    numbers = boundary.numbers
    values = {key: None if numbers is None else getattr(numbers, key) for key in _NUMBERS}
    return {**head, "bound": bound_of(divergence, boundary), **values}


def _one_sided(point: OneSided) -> Document:
    positions = None if point.positions is None else list(point.positions)
    return {
        "step": point.step,
        "session": point.session,
        "name": point.name,
        "positions": positions,
    }


def _point(point: BoundaryClasses | None) -> Document | None:
    if point is None:
        return None
    return {
        "step": point.step,
        "session": point.session,
        "name": point.name,
        "layer": point.layer,
        "kind": str(point.kind),
    }


def _classes(point: BoundaryClasses) -> Document:
    return {
        "step": point.step,
        "stage": point.stage,
        "session": point.session,
        "name": point.name,
        "kind": str(point.kind),
        "distinct": point.distinct,
        "classes": list(point.classes),
    }
