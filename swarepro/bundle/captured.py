"""What a run was told to capture."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Literal

from swarepro import points
from swarepro.bundle.schema import CaptureEntry, Manifest, TensorRecord
from swarepro.points import CapturePoint, Level, Scope

_RANK = {Level.OFF: 0, Level.BOUNDARY: 1, Level.OP: 2}


def captured(
    capture: CaptureEntry, point: CapturePoint, layer: int | None, *, last_stage: bool
) -> Literal["digest", "tensor"] | None:
    """Return how ``point`` at ``layer`` is kept, or None when it is not captured.

    At level ``off`` only the last boundary of the chain is kept, as a digest.
    """
    if capture.level is Level.OFF:
        is_last_boundary = last_stage and point in (points.LOGITS, points.BOUNDARY_SEND_HIDDEN)
        return "digest" if is_last_boundary else None
    if _RANK[point.level] > _RANK[capture.level]:
        return None
    if point.scope is Scope.LAYER and capture.layers and layer not in capture.layers:
        return None
    name = point.concrete(layer)
    if not any(fnmatchcase(name, glob) for glob in capture.points):
        return None
    return capture.store


def lacking(manifest: Manifest, records: Iterable[TensorRecord]) -> frozenset[str]:
    """Return the optional points that a run does not have: told to capture them, it found none.

    Args:
        manifest: of the run.
        records: all of them.
    """
    capture = manifest.capture
    if capture.steps and not any(step.index in capture.steps for step in manifest.steps):
        return frozenset()
    found = {record.point for record in records}
    layers = [
        layer for stage in manifest.stages for layer in range(stage.layer_start, stage.layer_end)
    ]
    return frozenset(
        point.name
        for point in points.ALL
        if point.optional
        and point.name not in found
        and any(captured(capture, point, layer, last_stage=False) for layer in layers)
    )
