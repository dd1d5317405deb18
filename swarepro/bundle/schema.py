"""The types of a bundle on disk, version 1; see docs/bundle-format.md."""

from typing import Literal

import msgspec

from swarepro.points import Level, PointKind

SCHEMA_VERSION = 1
DigestAlgorithm = Literal["xxh3_128", "swd_128"]
MANIFEST = "manifest.json"
RECORDS = "records.jsonl"
TENSORS = "tensors"
DIGEST = "xxh3_128"


class OnDisk(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of everything that a bundle stores as JSON."""


class TensorRecord(OnDisk, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One captured tensor; one line of records.jsonl, in execution order.

    Attributes:
        index: line number from 0 = place in execution order.
        step: of the run.
        stage: rank of the stage that emitted it, from 0.
        name: as users see it, e.g. ``L0_o_proj``.
        point: the declared point, e.g. ``L{layer}_o_proj``.
        layer: global layer id, or None.
        occurrence: 0 for the first tensor of this name in this step, then 1, 2, ...
        kind: state, value or metadata.
        dims: a letter per dimension, as in `swarepro.points.CapturePoint`.
        dtype: safetensors' name, e.g. ``BF16``, ``F32``, ``I64``.
        shape: of the tensor.
        digest: of its raw bytes (little-endian, row-major), 32 hex digits, by ``algorithm``.
        session: whose rows these are.
        row_start: logical position of row 0, rows being consecutive positions; None where they
            are not positions.
        file: path inside the bundle of the file that stores it; None when only the digest was kept.
        algorithm: ``xxh3_128``, or ``swd_128``, which a GPU computes where the tensor is; left out
            of the line where it is the first. Digests of two kinds say nothing about each other.
    """

    index: int
    step: int
    stage: int
    name: str
    point: str
    layer: int | None
    occurrence: int
    kind: PointKind
    dims: tuple[str, ...]
    dtype: str
    shape: tuple[int, ...]
    digest: str
    session: int
    row_start: int | None
    file: str | None
    algorithm: DigestAlgorithm = "xxh3_128"

    @property
    def key(self) -> str:
        """Key of the tensor in its file: the name, with ``#N`` for a later one in the step."""
        return tensor_key(self.name, self.occurrence)


def tensor_key(name: str, occurrence: int) -> str:
    """Return the key under which a step's file stores a tensor."""
    return name if occurrence == 0 else f"{name}#{occurrence}"


class FileEntry(OnDisk, frozen=True, kw_only=True):
    """One file of the bundle. ``digest`` is set for records.jsonl; a tensor's is in its record."""

    path: str
    num_bytes: int
    digest: str | None = None


class SpanEntry(OnDisk, frozen=True, kw_only=True):
    """Positions ``[start, end)`` of one session."""

    session: int
    start: int
    end: int


class StepEntry(OnDisk, frozen=True, kw_only=True):
    """One step of the plan that ran."""

    index: int
    phase: Literal["prefill", "decode"]
    spans: tuple[SpanEntry, ...]
    reset: bool


class StageEntry(OnDisk, frozen=True, kw_only=True):
    """One stage, with what loading it read. Layers are global and half-open."""

    layer_start: int
    layer_end: int
    role: Literal["first", "middle", "last", "single"]
    bytes_read: int
    header_bytes: int


class CaptureEntry(OnDisk, frozen=True, kw_only=True):
    """What was captured. ``points`` are name globs; empty ``layers`` or ``steps`` mean all."""

    level: Level
    store: Literal["digest", "tensor"]
    points: tuple[str, ...]
    layers: tuple[int, ...]
    steps: tuple[int, ...]


class BackendEntry(OnDisk, frozen=True, kw_only=True):
    """Where and how it ran.

    Attributes:
        routes: names of the codes of the ``route`` point.
        launches: launch configurations by kernel; empty where no kernel ran.
    """

    device: str
    dtype: str
    triton: Literal["off", "interpret", "compiled"]
    route: str
    schedule: str
    num_threads: int
    routes: dict[str, str]
    launches: dict[str, list[dict[str, int]]] = {}


class OwnerRange(OnDisk, frozen=True, kw_only=True):
    """Consecutive positions and their SWA slots: position p owns ``slots[p - start]``."""

    session: int
    start: int
    slots: tuple[int, ...]


class Violation(OnDisk, frozen=True, kw_only=True):
    """One broken ownership rule.

    Attributes:
        kind: e.g. ``sentinel-store``.
        step: after which it was seen first.
        positions: logical positions concerned.
        slots: SWA slots concerned.
        message: one sentence that says what it means.
    """

    kind: str
    step: int
    positions: tuple[int, ...]
    slots: tuple[int, ...]
    message: str


class StageOwnership(OnDisk, frozen=True, kw_only=True):
    """The SWA slots of one stage at the end of the run.

    Attributes:
        stage: rank.
        capacity: slots that can be handed out (the sentinel is not one of them).
        free: slots on the free list.
        live: slots that were handed out; under a fault they need not be the owned ones.
        positions: positions of the current session that were stored.
        owners: what each position owns.
        violations: in the order in which they were seen.
    """

    stage: int
    capacity: int
    free: int
    live: int
    positions: int
    owners: tuple[OwnerRange, ...]
    violations: tuple[Violation, ...]


class Environment(OnDisk, frozen=True, kw_only=True):
    """Versions and hardware, for the reader of a report."""

    swarepro: str
    python: str
    platform: str
    cpu: str
    num_cpus: int
    packages: dict[str, str]
    gpu: str | None


class Manifest(OnDisk, frozen=True, kw_only=True):
    """The manifest, written last: a folder without it is an incomplete run.

    Attributes:
        case: the case as it ran, as JSON data (the `CaseSpec` with all overrides).
        prompts: token ids per session.
        recv: the bundle whose hidden states the first stage received, or None.
        tokens: generated token ids per session: one by the last prefill chunk, one by each decode
            step.
        faults: injected, in the order in which they wrap.
        ownership: per stage that has sliding layers.
        num_records: lines of records.jsonl.
        seal: digest of all other fields (see `swarepro.bundle.seal`); a flipped byte is refused.
    """

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
