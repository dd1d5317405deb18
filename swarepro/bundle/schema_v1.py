"""The types of a manifest of version 1 that version 2 changed, as they were: never edited again.

Its seal is taken over these fields, and a field that only version 2 has is refused.
"""

from typing import Literal

import msgspec

from swarepro.bundle import schema
from swarepro.bundle.schema import (
    CaptureEntry,
    Environment,
    FileEntry,
    OnDisk,
    OwnerRange,
    StageEntry,
)


class SpanEntry(OnDisk, frozen=True, kw_only=True):
    """See `swarepro.bundle.schema.SpanEntry`."""

    session: int
    start: int
    end: int


class StepEntry(OnDisk, frozen=True, kw_only=True):
    """See `swarepro.bundle.schema.StepEntry`."""

    index: int
    phase: Literal["prefill", "decode"]
    spans: tuple[SpanEntry, ...]
    reset: bool


class BackendEntry(OnDisk, frozen=True, kw_only=True):
    """See `swarepro.bundle.schema.BackendEntry`."""

    device: str
    dtype: str
    triton: Literal["off", "interpret", "compiled"]
    route: str
    schedule: str
    num_threads: int
    routes: dict[str, str]
    launches: dict[str, list[dict[str, int]]] = msgspec.field(default_factory=dict)


class Violation(OnDisk, frozen=True, kw_only=True):
    """See `swarepro.bundle.schema.Violation`."""

    kind: str
    step: int
    positions: tuple[int, ...]
    slots: tuple[int, ...]
    message: str


class StageOwnership(OnDisk, frozen=True, kw_only=True):
    """See `swarepro.bundle.schema.StageOwnership`; of the sliding group alone."""

    stage: int
    capacity: int
    free: int
    live: int
    positions: int
    owners: tuple[OwnerRange, ...]
    violations: tuple[Violation, ...]


class ManifestV1(OnDisk, frozen=True, kw_only=True):
    """See `swarepro.bundle.schema.Manifest`."""

    schema_version: int
    run_id: str
    created: str
    case: dict[str, object]
    model: str
    num_layers: int
    steps: tuple[StepEntry, ...]
    stages: tuple[StageEntry, ...]
    capture: CaptureEntry
    backend: BackendEntry
    faults: tuple[str, ...]
    environment: Environment
    prompts: tuple[tuple[int, ...], ...]
    recv: str | None
    tokens: tuple[tuple[int, ...], ...]
    ownership: tuple[StageOwnership, ...]
    num_records: int
    files: tuple[FileEntry, ...]
    seal: str = ""


def upgraded(manifest: ManifestV1) -> schema.Manifest:
    """Return ``manifest`` in the types of today; it keeps its version and its seal."""
    return msgspec.convert(msgspec.to_builtins(manifest), type=schema.Manifest)
