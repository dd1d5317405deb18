"""The types of a bundle on disk, version 2; see docs/bundle-format.md.

Every field that version 2 added has a default: what a bundle of version 1 says by lacking it.
"""

from typing import Literal

import msgspec

from swarepro.points import Level, PointKind

SCHEMA_VERSION = 2
DigestAlgorithm = Literal["xxh3_128", "swd_128"]
Group = Literal["full", "sliding"]
"""A KV group: layers that share a pool and its slots."""
Phase = Literal["prefill", "decode"]
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
        occurrence: 0 for the first tensor of this name in this step, then 1, 2, ...: it counts the
            stages and the spans of the step, stage by stage.
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
    """Positions ``[start, end)`` of one session; ``phase`` None = the step's."""

    session: int
    start: int
    end: int
    phase: Phase | None = None


class ActionEntry(OnDisk, frozen=True, kw_only=True):
    """What happens to a session between two steps.

    Attributes:
        kind: ``finish`` frees its slots; ``keep`` finishes it and keeps them for reuse; ``reuse``
            starts it on positions ``[0, rows)`` of a kept session.
        session: to which it happens.
        of: of a reuse, the session whose positions are taken over; else None.
        rows: of a reuse, how many; else None.
    """

    kind: Literal["finish", "keep", "reuse"]
    session: int
    of: int | None = None
    rows: int | None = None

    @property
    def words(self) -> str:
        """As users see it, e.g. ``reuse 32 rows of 0 for 2``."""
        if self.kind == "reuse":
            return f"reuse {self.rows} rows of {self.of} for {self.session}"
        return f"{self.kind} {self.session}"


class StepEntry(OnDisk, frozen=True, kw_only=True):
    """One step that ran: of the plan, or of its beginning where the run was stopped.

    Attributes:
        index: from 0.
        phase: of all its spans, or ``mixed``: then every span says its own.
        spans: what it computed as one batch, at most one of a session.
        reset: whether the runtime was reset before it.
        actions: done before it, in this order, after the reset if there is one.
    """

    index: int
    phase: Literal["prefill", "decode", "mixed"]
    spans: tuple[SpanEntry, ...]
    reset: bool
    actions: tuple[ActionEntry, ...] = ()


class StageEntry(OnDisk, frozen=True, kw_only=True):
    """One stage, with what loading it read. Layers are global and half-open."""

    layer_start: int
    layer_end: int
    role: Literal["first", "middle", "last", "single"]
    bytes_read: int
    header_bytes: int


class CaptureEntry(OnDisk, frozen=True, kw_only=True):
    """What was captured. ``points`` are name globs; empty ``layers`` or ``steps`` mean all.

    Also with ``digest``, a run against another one stores the first mismatch and its inputs.
    """

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
        fill: with what memory that nobody wrote was filled; ``zero``, too, where no fill was
            chosen, and then a seeded schedule draws the memory of partial results.
        engine: what computed: ``paged`` (the stage runtime), ``dense`` or ``dense-fp64`` (the
            reference that has no pool), or the name of another program.
    """

    device: str
    dtype: str
    triton: Literal["off", "interpret", "compiled"]
    route: str
    schedule: str
    num_threads: int
    routes: dict[str, str]
    launches: dict[str, list[dict[str, int]]] = {}
    fill: Literal["zero", "large", "nan"] = "zero"
    engine: str = "paged"


class OwnerRange(OnDisk, frozen=True, kw_only=True):
    """Consecutive positions and their slots: position p owns ``slots[p - start]``."""

    session: int
    start: int
    slots: tuple[int, ...]


class Owner(OnDisk, frozen=True, kw_only=True):
    """One position of one session, as the owner or the user of a slot."""

    session: int
    position: int


class Violation(OnDisk, frozen=True, kw_only=True):
    """One broken ownership rule.

    Attributes:
        kind: e.g. ``sentinel-store``.
        step: in which it was seen first; what is done before a step belongs to it, what is done
            after the last step to the last.
        positions: logical positions concerned.
        slots: slots concerned.
        message: one sentence that says what it means.
        layer: global layer id, where one layer broke it; else None.
        group: KV group of the slots, as far as known.
        owner: who owns the slot, as far as known.
        user: for whom it was used, as far as known.
        order: its place among all violations of the run, in execution order; the smallest is the
            headline.
    """

    kind: str
    step: int
    positions: tuple[int, ...]
    slots: tuple[int, ...]
    message: str
    layer: int | None = None
    group: Group | None = None
    owner: Owner | None = None
    user: Owner | None = None
    order: int = 0


class StageOwnership(OnDisk, frozen=True, kw_only=True):
    """The slots of one KV group of one stage at the end of the run.

    ``free + live + evictable + reserved`` is the capacity, unless a rule was broken.

    Attributes:
        stage: rank.
        group: KV group.
        capacity: slots that can be handed out (the sentinel is not one of them).
        free: slots on the free list.
        live: slots that positions of running sessions own; in version 1, that were handed out.
        evictable: slots of finished sessions that are kept for reuse.
        reserved: slots of allocated pages that no position uses yet.
        positions: positions of running and of kept sessions that have to own a slot of the group,
            whether they do or not: all but evicted ones, in the sliding group.
        owners: what each position owns, sessions ascending.
        violations: in the order in which they were seen.
    """

    stage: int
    group: Group = "sliding"
    capacity: int
    free: int
    live: int
    evictable: int = 0
    reserved: int = 0
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
        ownership: per stage and KV group.
        num_records: lines of records.jsonl.
        final_actions: done after the last step.
        shadow: whether the ownership shadow watched the run; without it nothing was checked, and
            ``ownership`` has no violations.
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
    final_actions: tuple[ActionEntry, ...] = ()
    shadow: bool = True
    seal: str = ""
