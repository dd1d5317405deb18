"""Runs a prepared case: once into a bundle, or into memory."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import torch

from swarepro.build import RunOutcome, execute
from swarepro.bundle.environment import read_environment
from swarepro.bundle.schema import (
    BackendEntry,
    Manifest,
    OwnerRange,
    SpanEntry,
    StageEntry,
    StageOwnership,
    StepEntry,
    TensorRecord,
    Violation,
)
from swarepro.bundle.write import BundleWriter
from swarepro.capture import MemorySink, RecordSink
from swarepro.kvcache import SENTINEL_SLOT, OwnershipReport
from swarepro.plan import Step
from swarepro.runs.prepare import Prepared
from swarepro.runs.recv import BundleHidden
from swarepro.runtime.routes import ROUTE_CODES

StepHook = Callable[[Step], None]


def run_to_bundle(
    prepared: Prepared, directory: Path, *, schedule: str, on_step: StepHook
) -> Manifest:
    """Run once and write the bundle ``directory``; after an error nothing of it is left."""
    with BundleWriter(directory) as writer:
        outcome = _execute(prepared, writer, schedule=schedule, on_step=on_step)
        return writer.finish(
            case=msgspec.to_builtins(prepared.case),
            model=prepared.case.model,
            num_layers=prepared.model.config.num_layers,
            steps=_steps(prepared),
            stages=_stages(prepared),
            capture=prepared.capture,
            backend=_backend(prepared, schedule),
            faults=prepared.options.faults,
            environment=read_environment(gpu=_gpu(prepared)),
            prompts=prepared.plan.prompts,
            recv=None if prepared.options.recv is None else str(prepared.options.recv),
            tokens=outcome.tokens,
            ownership=ownership_entries(outcome.ownership, session=len(prepared.plan.prompts) - 1),
        )


def run_in_memory(
    prepared: Prepared, *, schedule: str, on_step: StepHook
) -> tuple[tuple[TensorRecord, ...], RunOutcome]:
    """Run once and return the records; no tensor is kept."""
    sink = MemorySink([])
    outcome = _execute(prepared, sink, schedule=schedule, on_step=on_step)
    return tuple(sink.records), outcome


def ownership_entries(
    reports: tuple[OwnershipReport | None, ...], *, session: int
) -> tuple[StageOwnership, ...]:
    """Return the manifest's form of the stages' ownership reports."""
    return tuple(
        StageOwnership(
            stage=stage,
            capacity=report.capacity,
            free=report.free,
            live=report.live,
            positions=report.positions,
            owners=_owner_ranges(report.owned, session),
            violations=tuple(
                Violation(
                    kind=violation.kind,
                    step=violation.step,
                    positions=violation.positions,
                    slots=violation.slots,
                    message=violation.message,
                )
                for violation in report.violations
            ),
        )
        for stage, report in enumerate(reports)
        if report is not None
    )


def _owner_ranges(owned: tuple[int, ...], session: int) -> tuple[OwnerRange, ...]:
    """Cut the positions into runs that own slots; positions without one are in no range."""
    ranges = []
    start = 0
    while start < len(owned):
        end = start
        while end < len(owned) and owned[end] != SENTINEL_SLOT:
            end += 1
        if end > start:
            ranges.append(OwnerRange(session=session, start=start, slots=owned[start:end]))
        start = end + 1
    return tuple(ranges)


def _execute(
    prepared: Prepared, sink: RecordSink, *, schedule: str, on_step: StepHook
) -> RunOutcome:
    recv, model = prepared.options.recv, prepared.model
    source = (
        None
        if recv is None
        else BundleHidden(
            recv,
            layer=prepared.plan.stages[0].layer_start,
            model=prepared.case.model,
            prompts=prepared.plan.prompts,
            hidden_size=model.config.hidden_size,
            dtype=model.dtype,
            device=model.backend.torch_device,
        )
    )
    return execute(
        prepared.plan,
        model,
        capture=prepared.capture,
        sink=sink,
        faults=prepared.options.faults,
        schedule=schedule,
        route=prepared.route,
        source=source,
        on_step=on_step,
    )


def _steps(prepared: Prepared) -> tuple[StepEntry, ...]:
    return tuple(
        StepEntry(
            index=step.index,
            phase=step.phase.value,
            spans=tuple(
                SpanEntry(session=span.session, start=span.start, end=span.end)
                for span in step.spans
            ),
            reset=step.reset,
        )
        for step in prepared.plan.steps
    )


def _stages(prepared: Prepared) -> tuple[StageEntry, ...]:
    return tuple(
        StageEntry(
            layer_start=stage.layer_start,
            layer_end=stage.layer_end,
            role=stage.role.value,
            bytes_read=weights.bytes_read,
            header_bytes=weights.header_bytes,
        )
        for stage, weights in zip(prepared.plan.stages, prepared.model.weights, strict=True)
    )


def _backend(prepared: Prepared, schedule: str) -> BackendEntry:
    backend = prepared.model.backend
    return BackendEntry(
        device=backend.device,
        dtype=prepared.case.dtype,
        triton=backend.triton,
        route=prepared.route,
        schedule=schedule,
        num_threads=torch.get_num_threads(),
        routes={str(code): name for name, code in ROUTE_CODES.items()},
        launches=prepared.launches,
    )


def _gpu(prepared: Prepared) -> str | None:
    device = prepared.model.backend.torch_device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else None
