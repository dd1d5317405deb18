"""Small constructed results for the report tests."""

from typing import Any

import msgspec

from swarepro.bundle.schema import (
    SCHEMA_VERSION,
    ActionEntry,
    BackendEntry,
    CaptureEntry,
    Environment,
    FileEntry,
    Manifest,
    Owner,
    OwnerRange,
    SpanEntry,
    StageEntry,
    StageOwnership,
    StepEntry,
    TensorRecord,
    Violation,
)
from swarepro.compare.types import (
    BoundaryClasses,
    BoundaryDiff,
    Determinism,
    Divergence,
    TensorDiff,
    Verdict,
)
from swarepro.points import Level, PointKind


def numbers(**changes: Any) -> TensorDiff:
    values: dict[str, Any] = {
        "num_elements": 192,
        "num_mismatched": 191,
        "first_mismatch": (0, 0, 1),
        "max_ulp": 32589,
        "max_abs": 2.604,
        "relative_l2": 1.9912,
        "cosine": 0.144347,
        "nonfinite_baseline": 0,
        "nonfinite_target": 0,
        "num_rows": 3,
        "rows": (0, 1, 2),
        "positions": (64, 65, 66),
        "heads": (0, 1, 2, 3),
        "num_heads": 4,
    }
    return TensorDiff(**(values | changes))


def boundary(name: str = "L0_attention_output", **changes: Any) -> BoundaryDiff:
    values: dict[str, Any] = {
        "step": 1,
        "stage": 0,
        "name": name,
        "layer": 0,
        "kind": PointKind.VALUE,
        "verdict": Verdict.DIVERGED,
        "origin": "inherited",
    }
    return BoundaryDiff(**(values | changes))


SLOTS = boundary(
    "swa_slots",
    step=0,
    layer=None,
    kind=PointKind.METADATA,
    origin="source",
    numbers=numbers(heads=(), num_heads=0),
)
STORE = boundary("L0_kv_slice_post_write", step=0, kind=PointKind.STATE, origin="source")
VALUE = boundary(numbers=numbers())


def divergence(**changes: Any) -> Divergence:
    values: dict[str, Any] = {
        "baseline": "runs/a",
        "target": "runs/b",
        "align": "step",
        "tolerance": None,
        "verdict": Verdict.DIVERGED,
        "compared": 384,
        "tensors_opened": 2,
        "boundaries": (STORE, VALUE),
        "last_identical": boundary("L0_kv_slice_pre_write", step=0, kind=PointKind.STATE),
        "first": STORE,
        "first_state": STORE,
        "first_value": VALUE,
        "exact": True,
        "exact_state": True,
        "exact_value": True,
        "only_baseline": (),
        "only_target": (),
        "tokens_differ": False,
    }
    return Divergence(**(values | changes))


def identical(**changes: Any) -> Divergence:
    values: dict[str, Any] = {
        "verdict": Verdict.IDENTICAL,
        "boundaries": (),
        "last_identical": None,
        "first": None,
        "first_state": None,
        "first_value": None,
        "tensors_opened": 0,
    }
    return divergence(**(values | changes))


def classes(name: str, sizes: tuple[int, ...], **changes: Any) -> BoundaryClasses:
    values: dict[str, Any] = {
        "step": 0,
        "stage": 0,
        "name": name,
        "layer": 0,
        "kind": PointKind.VALUE,
        "classes": sizes,
        "modal": "0" * 32,
        "deviating": tuple(range(sizes[0], sum(sizes))),
    }
    return BoundaryClasses(**(values | changes))


SAME = classes("L0_qkv_projected", (6,))
BAD_STORE = classes("L0_kv_slice_post_write", (3, 2, 1), kind=PointKind.STATE)
HARMED = classes("L0_attention_output", (5, 1), step=1)


def determinism(**changes: Any) -> Determinism:
    values: dict[str, Any] = {
        "repeats": 6,
        "points": (SAME, BAD_STORE, HARMED),
        "earliest_varying": BAD_STORE,
        "first_value_varying": HARMED,
        "outputs_vary": (1,),
        "tokens": ((7,), (7,), (7,), (7,), (7,), (9,)),
        "modal_repeat": 0,
        "deviating": (3, 4, 5),
        "rate_upper_bound": None,
        "only_some": (),
    }
    return Determinism(**(values | changes))


def deterministic(**changes: Any) -> Determinism:
    values: dict[str, Any] = {
        "points": (SAME,),
        "earliest_varying": None,
        "first_value_varying": None,
        "outputs_vary": (),
        "tokens": ((7,),) * 6,
        "deviating": (),
        "rate_upper_bound": 1 - 0.05 ** (1 / 6),
    }
    return determinism(**(values | changes))


VIOLATION = Violation(
    kind="sentinel-store",
    step=0,
    positions=tuple(range(64)),
    slots=(0,),
    message="positions 0 to 63 stored to SWA slot 0 [/x]",
)


def ownership(*violations: Violation, owned: bool = True) -> StageOwnership:
    owners = (OwnerRange(session=0, start=0, slots=tuple(range(1, 68))),) if owned else ()
    live = 67 if owned else 0
    return StageOwnership(
        stage=0,
        capacity=128,
        free=128 - live,
        live=live,
        positions=67,
        owners=owners,
        violations=violations,
    )


CROSSED = (
    Violation(
        kind="foreign-slot-read",
        step=3,
        positions=(4, 5, 9),
        slots=(17, 18, 40),
        message="session 1 reads rows that belong to session 0",
        layer=3,
        group="sliding",
        owner=Owner(session=0, position=100),
        user=Owner(session=1, position=4),
        order=1,
    ),
    Violation(
        kind="mapping-lost",
        step=5,
        positions=(),
        slots=(9,),
        message="1 slot is neither free nor owned by any position: a leak",
        group="sliding",
        order=2,
    ),
)
FIRST_CROSSED = Violation(
    kind="duplicate-slot-store",
    step=3,
    positions=(7,),
    slots=(3,),
    message="position 7 stored to a slot of another session",
    layer=5,
    group="full",
    owner=Owner(session=0, position=2),
    user=Owner(session=1, position=7),
    order=0,
)


def two_groups(*, broken: bool = False) -> tuple[StageOwnership, ...]:
    """The slots of a stage with both groups, two sessions, one of them kept."""
    owners = (
        OwnerRange(session=0, start=0, slots=(1, 2, 3)),
        OwnerRange(session=1, start=0, slots=(9,)),
        OwnerRange(session=1, start=4, slots=(11, 12)),
    )
    books = {"stage": 0, "capacity": 128, "positions": 6, "owners": owners}
    return (
        StageOwnership(
            group="sliding",
            free=110,
            live=6,
            evictable=10,
            reserved=2,
            violations=CROSSED if broken else (),
            **books,
        ),
        StageOwnership(
            group="full",
            free=100,
            live=6,
            evictable=20,
            reserved=2,
            violations=(FIRST_CROSSED,) if broken else (),
            **books,
        ),
    )


def batches() -> Manifest:
    """A run of two sessions in mixed batches, and a third that takes over rows."""
    prefill, decode = "prefill", "decode"

    def part(session: int, start: int, end: int, phase: Any = None) -> SpanEntry:
        return SpanEntry(session=session, start=start, end=end, phase=phase)

    return manifest(
        prompts=((1,) * 64, (2,) * 5, (1,) * 64),
        tokens=((227, 3), (4,), (5,)),
        steps=(
            StepEntry(index=0, phase=prefill, spans=(part(0, 0, 64),), reset=False),
            StepEntry(
                index=1,
                phase="mixed",
                spans=(part(1, 0, 5, prefill), part(0, 64, 65, decode)),
                reset=False,
            ),
            StepEntry(
                index=2,
                phase=prefill,
                spans=(part(2, 32, 64),),
                reset=False,
                actions=(
                    ActionEntry(kind="finish", session=1),
                    ActionEntry(kind="keep", session=0),
                    ActionEntry(kind="reuse", session=2, of=0, rows=32),
                ),
            ),
        ),
        final_actions=(ActionEntry(kind="finish", session=2),),
        ownership=two_groups(),
    )


def manifest(**changes: Any) -> Manifest:
    values = Manifest(
        schema_version=SCHEMA_VERSION,
        run_id="r1",
        created="2026-01-02T03:04:05+00:00",
        case={"name": "anchor-a"},
        model="synthetic:gemma4-tiny",
        num_layers=12,
        steps=(
            StepEntry(
                index=0,
                phase="prefill",
                spans=(SpanEntry(session=0, start=0, end=64),),
                reset=False,
            ),
            StepEntry(
                index=1,
                phase="decode",
                spans=(SpanEntry(session=0, start=64, end=65),),
                reset=False,
            ),
        ),
        stages=(
            StageEntry(layer_start=0, layer_end=12, role="single", bytes_read=10, header_bytes=2),
        ),
        capture=CaptureEntry(level=Level.OP, store="tensor", points=("*",), layers=(), steps=()),
        backend=BackendEntry(
            device="cpu",
            dtype="bf16",
            triton="off",
            route="eager",
            schedule="program",
            num_threads=2,
            routes={"0": "eager"},
        ),
        faults=(),
        environment=Environment(
            swarepro="0.1.0",
            python="3.11.7",
            platform="Linux",
            cpu="a cpu",
            num_cpus=2,
            packages={"torch": "2.13.0"},
            gpu=None,
        ),
        prompts=((1,) * 64,),
        recv=None,
        tokens=((227, 3),),
        ownership=(ownership(),),
        num_records=2,
        files=(FileEntry(path="records.jsonl", num_bytes=2048, digest="0" * 32),),
    )
    return msgspec.structs.replace(values, **changes)


def record(index: int, **changes: Any) -> TensorRecord:
    values = TensorRecord(
        index=index,
        step=0,
        stage=0,
        name="L0_o_proj",
        point="L{layer}_o_proj",
        layer=0,
        occurrence=0,
        kind=PointKind.VALUE,
        dims=("T", "E"),
        dtype="BF16",
        shape=(3, 96),
        digest="0" * 32,
        session=0,
        row_start=0,
        file="tensors/step-0000.safetensors",
    )
    return msgspec.structs.replace(values, **changes)
