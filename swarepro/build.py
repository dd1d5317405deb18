"""The composition root: plan, weights, backend, faults and capture become a runner."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from swarepro.backend import Backend, torch_dtype
from swarepro.bundle.schema import CaptureEntry
from swarepro.capture import Recorder, RecordSink
from swarepro.capture.recorder import captured
from swarepro.checkpoint.config import ModelConfig
from swarepro.checkpoint.contract import Checkpoint
from swarepro.checkpoint.weights import StageWeights
from swarepro.faults import FAULTS, Fault
from swarepro.kvcache import HybridKVCache, OwnershipReport
from swarepro.plan import RunPlan, Step
from swarepro.runtime.chain import HiddenSource, StageChain
from swarepro.runtime.groups import stage_groups
from swarepro.runtime.parts import StageParts
from swarepro.runtime.routes import build_route
from swarepro.runtime.schedule import parse_schedule
from swarepro.runtime.shapes import expected_tensors
from swarepro.runtime.stage import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Loaded weights of every stage of a plan; shared by all repeats of a run."""

    config: ModelConfig
    dtype: torch.dtype
    backend: Backend
    weights: tuple[StageWeights, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """What one execution gave besides its records."""

    tokens: tuple[tuple[int, ...], ...]
    ownership: tuple[OwnershipReport | None, ...]


def load_model(checkpoint: Checkpoint, plan: RunPlan, *, dtype: str, backend: Backend) -> Model:
    """Load what each stage of ``plan`` needs, and nothing else. Raises CheckpointError."""
    weights = tuple(
        checkpoint.load_stage(
            stage.layer_start,
            stage.layer_end,
            embedding=stage.has_embedding,
            head=stage.has_head,
            dtype=torch_dtype(dtype),
            device=backend.torch_device,
        )
        for stage in plan.stages
    )
    return Model(
        config=checkpoint.config, dtype=torch_dtype(dtype), backend=backend, weights=weights
    )


def estimate_bytes(
    plan: RunPlan, config: ModelConfig, capture: CaptureEntry, *, itemsize: int
) -> tuple[int, int]:
    """Return how many records a run writes and how many bytes of tensors it stores.

    Args:
        plan: what runs.
        config: of the model.
        capture: what is captured.
        itemsize: bytes of one value of the run's dtype.
    """
    records = num_bytes = 0
    for tensor in expected_tensors(plan, config, itemsize=itemsize):
        if capture.steps and tensor.step not in capture.steps:
            continue
        is_last = tensor.stage == len(plan.stages) - 1
        kept = captured(capture, tensor.point, tensor.layer, last_stage=is_last)
        records += kept is not None
        num_bytes += tensor.num_bytes if kept == "tensor" else 0
    return records, num_bytes


def execute(
    plan: RunPlan,
    model: Model,
    *,
    capture: CaptureEntry,
    sink: RecordSink,
    faults: tuple[str, ...],
    schedule: str,
    route: str,
    source: HiddenSource | None = None,
    on_step: Callable[[Step], None] = lambda step: None,
) -> RunOutcome:
    """Run ``plan`` once on fresh KV pools.

    Args:
        plan: what runs.
        model: its weights.
        capture: what is captured.
        sink: takes the records.
        faults: names, wrapped in this order.
        schedule: resolved: ``program``, ``seeded:N`` or ``hardware``.
        route: resolved name of the attention implementation.
        source: of hidden states, for a chain that does not begin at layer 0.
        on_step: called with each finished step.

    Raises:
        UsageError: no such fault or schedule.
        BackendError: the process runs kernels in another mode.
        SessionError: what the lifecycle refuses.
    """
    chosen = tuple(FAULTS.get(name) for name in faults)
    model.backend.activate()
    parts_of_route = build_route(route, parse_schedule(schedule), model.backend)
    recorder = Recorder(capture, sink, parts_of_route.digester)
    stages = []
    last = len(plan.stages) - 1
    for rank, (spec, weights) in enumerate(zip(plan.stages, model.weights, strict=True)):
        cache = HybridKVCache(
            stage_groups(model.config, spec),
            capacity=plan.capacity,
            swa_capacity=plan.swa_capacity,
            dtype=model.dtype,
            device=model.backend.torch_device,
        )
        tap = recorder.tap(rank, is_last=rank == last)
        parts = StageParts(
            allocator=cache.session,
            attention=parts_of_route.attention,
            store=parts_of_route.store,
            ops=parts_of_route.ops,
            tap=tap,
        )
        stages.append(
            Stage(
                spec=spec,
                config=model.config,
                weights=weights,
                cache=cache,
                parts=wrap_parts(parts, chosen),
                dtype=model.dtype,
                device=model.backend.torch_device,
            )
        )
    chain = StageChain(
        tuple(stages), last_tap=tap, device=model.backend.torch_device, source=source
    )

    def after_step(step: Step) -> None:
        recorder.end_step()
        on_step(step)

    tokens = chain.run(
        plan,
        before_step=lambda step: recorder.begin_step(step.index, step.spans[0].session),
        after_step=after_step,
    )
    return RunOutcome(tokens=tokens, ownership=chain.ownership())


def wrap_parts(parts: StageParts, faults: tuple[Fault, ...]) -> StageParts:
    """Fold ``faults`` into ``parts``, the first one innermost."""
    for fault in faults:
        parts = fault.wrap(parts)
    return parts
