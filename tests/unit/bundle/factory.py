"""Hand-made bundles for the tests of bundle/ and compare/."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from swarepro import points
from swarepro.bundle.digest import digest_bytes
from swarepro.bundle.read import Bundle, open_bundle
from swarepro.bundle.schema import (
    ActionEntry,
    BackendEntry,
    CaptureEntry,
    Environment,
    SpanEntry,
    StageEntry,
    StageOwnership,
    StepEntry,
    TensorRecord,
)
from swarepro.bundle.write import BundleWriter
from swarepro.points import CapturePoint, Level

ROOT = Path(__file__).parents[3]
"""Of the checkout: where a subprocess has to run."""
VIEWS = {"BF16": "<u2", "F32": "<f4", "F64": "<f8", "F16": "<f2", "I64": "<i8", "I32": "<i4"}


def bf16(values) -> np.ndarray:
    """Round to bfloat16 (truncating) and return its bits."""
    return (np.asarray(values, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)


def item(
    point: CapturePoint,
    array: np.ndarray,
    *,
    dtype: str = "F32",
    step: int = 0,
    stage: int = 0,
    layer: int | None = None,
    session: int = 0,
    row_start: int | None = 0,
    store: bool = True,
    occurrence: int = 0,
) -> tuple[TensorRecord, np.ndarray, bool]:
    """Return a record with its tensor and whether it is to be stored."""
    array = np.ascontiguousarray(array, dtype=VIEWS[dtype]).reshape(np.shape(array))
    record = TensorRecord(
        index=0,
        step=step,
        stage=stage,
        name=point.concrete(layer),
        point=point.name,
        layer=layer,
        occurrence=occurrence,
        kind=point.kind,
        dims=point.dims,
        dtype=dtype,
        shape=array.shape,
        digest=digest_bytes(array.tobytes()),
        session=session,
        row_start=row_start,
        file=None,
    )
    return record, array, store


def spans(*rows: tuple[int, int]) -> tuple[StepEntry, ...]:
    """Return prefill steps of session 0 over these half-open ranges."""
    return tuple(
        StepEntry(
            index=index,
            phase="prefill",
            spans=(SpanEntry(session=0, start=start, end=end),),
            reset=False,
        )
        for index, (start, end) in enumerate(rows)
    )


def batch(
    index: int,
    *rows: tuple[int, int, int] | tuple[int, int, int, str],
    reset: bool = False,
    actions: tuple[ActionEntry, ...] = (),
) -> StepEntry:
    """Return a step over spans (session, start, end), each a prefill unless it says its phase."""
    phases = [row[3] if len(row) == 4 else "prefill" for row in rows]
    mixed = len(set(phases)) > 1
    return StepEntry(
        index=index,
        phase="mixed" if mixed else phases[0],
        spans=tuple(
            SpanEntry(session=row[0], start=row[1], end=row[2], phase=phase if mixed else None)
            for row, phase in zip(rows, phases, strict=True)
        ),
        reset=reset,
        actions=actions,
    )


def finish(session: int) -> ActionEntry:
    """Return the end of a session."""
    return ActionEntry(kind="finish", session=session)


def keep(session: int) -> ActionEntry:
    """Return the end of a session whose slots stay for reuse."""
    return ActionEntry(kind="keep", session=session)


def reuse(session: int, *, of: int, rows: int) -> ActionEntry:
    """Return the take-over of rows of a kept session."""
    return ActionEntry(kind="reuse", session=session, of=of, rows=rows)


def stages(*layers: tuple[int, int]) -> tuple[StageEntry, ...]:
    """Return stages over these half-open layer ranges."""
    last = len(layers) - 1
    return tuple(
        StageEntry(
            layer_start=start,
            layer_end=end,
            role="single" if last == 0 else {0: "first", last: "last"}.get(rank, "middle"),
            bytes_read=1,
            header_bytes=1,
        )
        for rank, (start, end) in enumerate(layers)
    )


@dataclass
class Run:
    """What a test wants to say about a run; the rest is filled in."""

    items: list
    steps: tuple[StepEntry, ...] = field(default_factory=lambda: spans((0, 4)))
    stages: tuple[StageEntry, ...] = field(default_factory=lambda: stages((0, 2)))
    num_layers: int = 2
    route: str = "eager"
    device: str = "cpu"
    dtype: str = "float32"
    prompts: tuple = ((1, 2, 3, 4),)
    tokens: tuple = ((7,),)
    fill: str = "zero"
    engine: str = "paged"
    ownership: tuple[StageOwnership, ...] = ()
    final_actions: tuple[ActionEntry, ...] = ()
    shadow: bool = True
    case: dict = field(default_factory=lambda: {"name": "hand-made", "numbers": [1, 2.5, None]})

    def write(self, directory: Path) -> Path:
        """Write the bundle and return its path."""
        with BundleWriter(directory) as writer:
            for step in self.steps:
                for record, array, store in self.items:
                    if record.step == step.index:
                        writer.add(record, array.data if store else None)
                writer.end_step()
            writer.finish(**self.manifest_fields())
        return directory

    def open(self, directory: Path) -> Bundle:
        """Write the bundle and open it."""
        return open_bundle(self.write(directory))

    def manifest_fields(self) -> dict:
        """Return the arguments of `BundleWriter.finish`."""
        return {
            "case": self.case,
            "model": "synthetic:hand-made",
            "num_layers": self.num_layers,
            "steps": self.steps,
            "stages": self.stages,
            "capture": CaptureEntry(
                level=Level.OP, store="tensor", points=("*",), layers=(), steps=()
            ),
            "backend": BackendEntry(
                device=self.device,
                dtype=self.dtype,
                triton="off",
                route=self.route,
                schedule="program",
                num_threads=1,
                routes={"0": "eager"},
                fill=self.fill,
                engine=self.engine,
            ),
            "faults": (),
            "environment": Environment(
                swarepro="0",
                python="3",
                platform="test",
                cpu="test",
                num_cpus=1,
                packages={},
                gpu=None,
            ),
            "prompts": self.prompts,
            "recv": None,
            "tokens": (*self.tokens, *((),) * (len(self.prompts) - len(self.tokens))),
            "ownership": self.ownership,
            "final_actions": self.final_actions,
            "shadow": self.shadow,
            "created": "2026-01-01T00:00:00+00:00",
        }


def small_run() -> Run:
    """Return a run with I64, BF16, F32, scalar and empty tensors in 2 steps."""
    rng = np.random.default_rng(0)

    def of_step(step: int, start: int, rows: int) -> list:
        at = {"step": step, "row_start": start}
        return [
            item(points.INPUT_IDS, np.arange(rows), dtype="I64", **at),
            item(points.PREFIX_LEN, np.array(start), dtype="I64", step=step, row_start=None),
            item(points.FULL_SLOTS, np.zeros(0), dtype="I64", step=step, row_start=None),
            item(points.EMBEDDING_OUTPUT, bf16(rng.normal(size=(rows, 3))), dtype="BF16", **at),
            item(points.O_PROJ, rng.normal(size=(rows, 3)), layer=0, **at),
            item(points.AFTER_LAYER, rng.normal(size=(rows, 3)), layer=0, store=False, **at),
            item(points.LOGITS, rng.normal(size=(1, 5)), step=step, row_start=start + rows - 1),
        ]

    return Run(items=of_step(0, 0, 3) + of_step(1, 3, 1), steps=spans((0, 3), (3, 4)))
