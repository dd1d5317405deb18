"""What the manifest of an imported bundle says, and the check of it before it is written.

An imported run has no ownership, no shadow and no faults that are known: the engine's are its own.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from swarepro import points
from swarepro.bundle.checks import check_records
from swarepro.bundle.dtypes import DTYPES
from swarepro.bundle.environment import read_environment
from swarepro.bundle.manifest_checks import check_manifest
from swarepro.bundle.schema import (
    SCHEMA_VERSION,
    ActionEntry,
    BackendEntry,
    CaptureEntry,
    Environment,
    Manifest,
    StageEntry,
    StageOwnership,
    StepEntry,
    TensorRecord,
)
from swarepro.errors import BundleError, ForeignError
from swarepro.foreign.index import Index
from swarepro.foreign.maps import ForeignMap
from swarepro.foreign.timeline import Timeline
from swarepro.foreign.tokens import Ids
from swarepro.points import Level, PointKind

UNKNOWN = "unknown"
_RUN_DTYPES = {"BF16": "bf16", "F16": "fp16", "F32": "fp32", "F64": "fp64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Fields of `swarepro.bundle.schema.Manifest` that an import fills in."""

    case: dict[str, object]
    model: str
    num_layers: int
    steps: tuple[StepEntry, ...]
    stages: tuple[StageEntry, ...]
    capture: CaptureEntry
    backend: BackendEntry
    faults: tuple[str, ...]
    environment: Environment
    prompts: Ids
    tokens: Ids
    ownership: tuple[StageOwnership, ...]
    final_actions: tuple[ActionEntry, ...]
    shadow: bool


def make_facts(
    spec: ForeignMap,
    index: Index | None,
    timeline: Timeline,
    records: Sequence[TensorRecord],
    *,
    imported: dict[str, object],
    prompts: Ids,
    tokens: Ids,
) -> Facts:
    """Return what the manifest says.

    Args:
        spec: the map.
        index: of an export, whose facts go before those of the map; else None.
        timeline: the steps.
        records: of the bundle.
        imported: what the case says of the import.
        prompts: token ids by session.
        tokens: generated ones.
    """
    layers = [record.layer for record in records if record.layer is not None]
    num_layers = spec.num_layers or max(layers, default=0) + 1
    return Facts(
        case={"name": "imported", "imported": imported},
        model=spec.model if index is None else index.model,
        num_layers=num_layers if index is None else index.num_layers,
        steps=timeline.steps,
        stages=_whole(num_layers) if index is None else index.stages,
        capture=_capture(imported, records) if index is None else index.capture,
        backend=_backend(spec, records) if index is None else index.backend,
        faults=() if index is None else index.faults,
        environment=read_environment(),
        prompts=prompts,
        tokens=tokens,
        ownership=(),
        final_actions=timeline.final_actions,
        shadow=False,
    )


def check_facts(facts: Facts, records: Sequence[TensorRecord], source: Path) -> None:
    """Demand of a bundle what its readers will, before any of it is on disk.

    Raises:
        ForeignError: a number out of range, or two that are at odds.
    """
    manifest = Manifest(
        schema_version=SCHEMA_VERSION,
        run_id="imported",
        created="",
        recv=None,
        num_records=len(records),
        files=(),
        **{name: getattr(facts, name) for name in Facts.__slots__},
    )
    numbered = tuple(
        msgspec.structs.replace(record, index=place) for place, record in enumerate(records)
    )
    try:
        check_manifest(source, manifest)
        check_records(source, numbered, manifest)
    except BundleError as error:
        raise ForeignError(
            f"no bundle can be made of it: {error.message}",
            hint="the map, its sizes or the dump's numbers of layers and steps are wrong",
        ) from None


def _capture(imported: dict[str, object], records: Sequence[TensorRecord]) -> CaptureEntry:
    """Name what was dumped and no more: of other points nothing is known, not that they lack."""
    found = {record.point for record in records}
    return CaptureEntry(
        level=Level.OP,
        store="digest" if imported["from"] == "digests" else "tensor",
        points=tuple(x.name.replace("{layer}", "*") for x in points.ALL if x.name in found),
        layers=(),
        steps=(),
    )


def _whole(num_layers: int) -> tuple[StageEntry, ...]:
    return (
        StageEntry(
            layer_start=0, layer_end=num_layers, role="single", bytes_read=0, header_bytes=0
        ),
    )


def _backend(spec: ForeignMap, records: Sequence[TensorRecord]) -> BackendEntry:
    floats = Counter(
        record.dtype
        for record in records
        if record.kind is PointKind.VALUE and DTYPES[record.dtype].is_float
    )
    common = floats.most_common(1)[0][0] if floats else "F32"
    return BackendEntry(
        device=spec.device,
        dtype=spec.dtype or _RUN_DTYPES.get(common, common.lower()),
        triton="off",
        route=UNKNOWN,
        schedule=UNKNOWN,
        num_threads=1,
        routes={},
        engine=spec.engine,
    )
