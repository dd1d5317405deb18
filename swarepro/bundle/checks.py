"""What a reader demands of records and paths before it believes a bundle."""

import re
import stat
from pathlib import Path

from swarepro import points
from swarepro.bundle.device_digest import can_digest
from swarepro.bundle.digest import is_digest
from swarepro.bundle.dtypes import NUM_BYTES
from swarepro.bundle.schema import (
    RECORDS,
    TENSORS,
    Manifest,
    TensorRecord,
)
from swarepro.errors import BundleError, SwareproError

MOST = 2**31
"""More positions, slots, steps or token ids than any run has."""
_Shown = dict[tuple[str, int | None], tuple[points.CapturePoint, str]]
"""What a point at a layer is and how users see it."""
_TENSOR_FILE = re.compile(rf"{TENSORS}/[A-Za-z0-9_.-]+\.safetensors")


def is_regular(path: Path) -> bool:
    """Return whether ``path`` is a regular file, links followed; a pipe would block its reader."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def inside(root: Path, relative: str) -> Path:
    """Return the path of a file of the bundle at ``root`` (resolved).

    Raises:
        BundleError: the path is no plain relative path, or leads out of the bundle.
    """
    if relative != RECORDS and _TENSOR_FILE.fullmatch(relative) is None:
        raise BundleError(f"{root}: {relative!r} is no path that a bundle may name")
    path = root / relative
    if not is_regular(path):
        raise BundleError(f"{path} is missing or is not a regular file")
    if not path.resolve().is_relative_to(root):
        raise BundleError(f"{root}: {relative!r} leads out of the bundle to {path.resolve()}")
    return path


def check_records(path: Path, records: tuple[TensorRecord, ...], manifest: Manifest) -> None:
    """Check every record against the declared points, the manifest and the order of execution.

    Args:
        path: of the records, for messages.
        records: as decoded.
        manifest: of the same bundle.

    Raises:
        BundleError: with the line, the record and what is wrong with it.
    """
    steps = {step.index: {span.session for span in step.spans} for step in manifest.steps}
    files = {entry.path for entry in manifest.files}
    shown: _Shown = {
        (point.name, None): (point, point.name)
        for point in points.ALL
        if point.scope is not points.Scope.LAYER
    }
    previous: points.ExecKey | None = None
    step, seen = -1, {}  # type: int, dict[str, int]
    for index, record in enumerate(records):
        wrong = _wrong(record, index, manifest, steps, files, shown)
        if wrong is None:
            if record.step != step:
                step, seen = record.step, {}
            expected = seen.get(record.name, 0)
            seen[record.name] = expected + 1
            key = points.exec_key(
                shown[record.point, record.layer][0],
                step=record.step,
                stage=record.stage,
                layer=record.layer,
                occurrence=record.occurrence,
            )
            if record.occurrence != expected:
                wrong = f"occurrence {record.occurrence} where {expected} is next in this step"
            elif previous is not None and key <= previous:
                wrong = "it is not in execution order"
            previous = key
        if wrong is not None:
            raise BundleError(f"{path} line {index + 1}: {record.name!r}: {wrong}")


def _wrong(
    record: TensorRecord,
    index: int,
    manifest: Manifest,
    steps: dict[int, set[int]],
    files: set[str],
    shown: _Shown,
) -> str | None:
    place = record.point, record.layer
    if place not in shown:
        wrong = _declare(record, manifest, shown)
        if wrong is not None:
            return wrong
    point, name = shown[place]
    if record.index != index:
        return f"index {record.index} where {index} is next"
    if record.name != name:
        return f"point {record.point!r} at layer {record.layer} is called {name!r}"
    if record.kind is not point.kind or record.dims != point.dims:
        return f"point {record.point!r} is {point.kind} with dims {' '.join(point.dims)!r}"
    if len(record.shape) != len(point.dims) or (record.shape and min(record.shape) < 0):
        return f"shape {list(record.shape)} does not fit dims {' '.join(point.dims)!r}"
    if record.dtype not in NUM_BYTES:
        return f"unknown dtype {record.dtype!r}"
    if not is_digest(record.digest):
        return f"not a digest: {record.digest!r}"
    if record.algorithm == "swd_128" and not can_digest(record.dtype):
        return f"swd_128 is not defined for {record.dtype}"
    if record.step not in steps:
        return f"the manifest has no step {record.step}"
    if not 0 <= record.stage < len(manifest.stages):
        return f"the manifest has no stage {record.stage}"
    if not 0 <= record.session < len(manifest.prompts):
        return f"the manifest has no session {record.session}"
    if record.session not in steps[record.step]:
        return f"session {record.session} has no span in step {record.step}"
    if record.row_start is not None and not 0 <= record.row_start <= MOST:
        return f"row_start {record.row_start} is no position"
    if record.file is not None and record.file not in files:
        return f"the manifest does not list its file {record.file!r}"
    return None


def _declare(
    record: TensorRecord,
    manifest: Manifest,
    shown: _Shown,
) -> str | None:
    try:
        point = points.by_name(record.point)
    except SwareproError as error:
        return str(error)
    if (record.layer is None) != (point.scope is not points.Scope.LAYER):
        return f"layer {record.layer} for point {point.name!r} of scope {point.scope}"
    if record.layer is not None and not 0 <= record.layer < manifest.num_layers:
        return f"the model has no layer {record.layer}"
    shown[record.point, record.layer] = point, point.concrete(record.layer)
    return None
