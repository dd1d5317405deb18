"""Runs a prepared case: once into a bundle, or into memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch

from swarepro import ownership
from swarepro.backend import torch_dtype
from swarepro.build import Execution, RunOutcome, Setting
from swarepro.bundle.environment import read_environment
from swarepro.bundle.schema import (
    SCHEMA_VERSION,
    ActionEntry,
    BackendEntry,
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
from swarepro.bundle.write import BundleWriter
from swarepro.capture import MemorySink, Recorder, RecordSink, Witness
from swarepro.dense import run_dense
from swarepro.errors import SessionError
from swarepro.options import DENSE_DTYPES, FILL_VALUES
from swarepro.plan import Action, Finish, Phase, RunPlan, Span, Step
from swarepro.runs.prepare import Prepared
from swarepro.runs.recv import BundleHidden
from swarepro.runtime.parts import PartWrapper
from swarepro.runtime.routes import ROUTE_CODES

StepHook = Callable[[Step], None]


def run_to_bundle(
    prepared: Prepared,
    directory: Path,
    *,
    schedule: str,
    on_step: StepHook,
    wrapper: PartWrapper | None = None,
) -> Manifest:
    """Run once and write the bundle ``directory``; after an error nothing of it is left.

    Args:
        prepared: what runs.
        directory: of the bundle.
        schedule: of its launches.
        on_step: called with each finished step.
        wrapper: put around the parts of every stage, outermost; the manifest does not name it.
    """
    with BundleWriter(directory) as writer:
        if prepared.options.engine == "paged":
            run = execution(prepared, writer, schedule=schedule)
            if wrapper is not None:
                run.wrap(wrapper)
            with saying_what_broke(run):
                outcome = run.run(on_step=on_step)
        else:
            outcome = run_reference(prepared, writer, on_step)
        return finish(writer, prepared, outcome, schedule=schedule)


def finish(
    writer: BundleWriter,
    prepared: Prepared,
    outcome: RunOutcome,
    *,
    schedule: str,
    num_steps: int | None = None,
) -> Manifest:
    """Write the manifest of a run; ``num_steps`` = how many of the plan's ran, None = all."""
    return writer.finish(
        tokens=outcome.tokens,
        ownership=ownership_entries(outcome),
        **_described(prepared, schedule, num_steps),
    )


def planned_manifest(prepared: Prepared, *, schedule: str) -> Manifest:
    """Return what is known of a run's manifest before it runs; the rest is empty."""
    return Manifest(
        schema_version=SCHEMA_VERSION,
        run_id="",
        created="",
        tokens=((),) * len(prepared.plan.prompts),
        ownership=(),
        num_records=0,
        files=(),
        **_described(prepared, schedule, None),
    )


def _described(prepared: Prepared, schedule: str, num_steps: int | None) -> dict[str, Any]:
    steps = step_entries(prepared.plan)
    is_whole = num_steps is None or num_steps == len(steps)
    return {
        "case": msgspec.to_builtins(prepared.case),
        "model": prepared.case.model,
        "num_layers": prepared.model.config.num_layers,
        "steps": steps[:num_steps],
        "stages": stage_entries(prepared),
        "capture": prepared.capture,
        "backend": _backend(prepared, schedule),
        "faults": _faults(prepared),
        "environment": read_environment(gpu=_gpu(prepared)),
        "prompts": prepared.plan.prompts,
        "recv": None if prepared.options.recv is None else str(prepared.options.recv),
        "shadow": prepared.options.is_watched,
        "final_actions": action_entries(prepared.plan.final_actions) if is_whole else (),
    }


def run_reference(prepared: Prepared, sink: RecordSink, on_step: StepHook) -> RunOutcome:
    """Run once through the dense reference; nobody owns slots in it."""
    source = hidden_source(prepared)
    tokens = run_dense(
        prepared.plan,
        prepared.model.config,
        prepared.model.weights,
        dtype=torch_dtype(DENSE_DTYPES[prepared.options.engine]),
        recorder=Recorder(prepared.capture, sink),
        received=None if source is None else source.hidden,
        on_step=on_step,
    )
    return RunOutcome(tokens=tokens, accounts=(), violations=())


def run_in_memory(
    prepared: Prepared, *, schedule: str, on_step: StepHook
) -> tuple[tuple[TensorRecord, ...], RunOutcome]:
    """Run once and return the records; no tensor is kept."""
    sink = MemorySink([])
    run = execution(prepared, sink, schedule=schedule)
    with saying_what_broke(run):
        outcome = run.run(on_step=on_step)
    return tuple(sink.records), outcome


def ownership_entries(outcome: RunOutcome) -> tuple[StageOwnership, ...]:
    """Return the manifest's form of who owns which slot, by stage and KV group.

    A violation that concerns no group stands with the first group of its stage.
    """
    entries = []
    for stage, accounts in enumerate(outcome.accounts):
        for place, account in enumerate(accounts):
            own = [
                violation
                for violation in outcome.violations
                if violation.stage == stage
                and (violation.group is account.group or (violation.group is None and place == 0))
            ]
            entries.append(
                StageOwnership(
                    stage=stage,
                    group=account.group.value,
                    capacity=account.capacity,
                    free=account.free,
                    live=account.live,
                    evictable=account.evictable,
                    reserved=account.reserved,
                    positions=account.positions,
                    owners=tuple(
                        OwnerRange(session=session, start=start, slots=slots)
                        for session, start, slots in account.owners
                    ),
                    violations=tuple(violation_entry(violation) for violation in own),
                )
            )
    return tuple(entries)


def violation_entry(found: ownership.Violation) -> Violation:
    """Return the form of a violation on disk."""
    return Violation(
        kind=found.kind,
        step=found.step,
        layer=found.layer,
        group=None if found.group is None else found.group.value,
        positions=found.positions,
        slots=found.slots,
        owner=_owner(found.owner),
        user=_owner(found.user),
        message=found.message,
        order=found.order,
    )


def _owner(found: ownership.Owner | None) -> Owner | None:
    return None if found is None else Owner(session=found.session, position=found.position)


def execution(
    prepared: Prepared, sink: RecordSink, *, schedule: str, witness: Witness | None = None
) -> Execution:
    """Set up one execution of ``prepared`` on fresh pools."""
    options = prepared.options
    setting = Setting(
        capture=prepared.capture,
        faults=_faults(prepared),
        schedule=schedule,
        route=prepared.route,
        shadow=options.is_watched,
        fill=None if options.fill is None else FILL_VALUES[options.fill],
        source=hidden_source(prepared),
    )
    return Execution(prepared.plan, prepared.model, setting, sink=sink, witness=witness)


@contextmanager
def saying_what_broke(
    run: Execution, *, also: Callable[[], str | None] = lambda: None
) -> Iterator[None]:
    """Let an error that ends a run say what the ownership shadow saw first, and what ``also`` says.

    Raises:
        SessionError: of the type that it was, with a longer hint.
    """
    try:
        yield
    except SessionError as error:
        first = run.log.first
        broken = (
            None
            if first is None
            else f"ownership was broken before, first by {first.kind} at step {first.step}:"
            " `swarepro ownership` tells more"
        )
        hints = [hint for hint in (error.hint, also(), broken) if hint is not None]
        raise type(error)(error.message, hint="; ".join(hints) or None) from None


def _faults(prepared: Prepared) -> tuple[str, ...]:
    """Return what is injected: the reference has no part that a fault could wrap."""
    if prepared.options.engine != "paged":
        return ()
    return (*prepared.case.background, *prepared.options.faults)


def hidden_source(prepared: Prepared) -> BundleHidden | None:
    """Return where the hidden states come from that the first stage receives, if it does."""
    recv, model = prepared.options.recv, prepared.model
    if recv is None:
        return None
    return BundleHidden(
        recv,
        layer=prepared.plan.stages[0].layer_start,
        model=prepared.case.model,
        prompts=prepared.plan.prompts,
        images=[session.images for session in prepared.case.sessions],
        hidden_size=model.config.hidden_size,
        dtype=model.dtype,
        device=model.backend.torch_device,
    )


def step_entries(plan: RunPlan) -> tuple[StepEntry, ...]:
    """Return the manifest's form of the steps."""
    return tuple(
        StepEntry(
            index=step.index,
            phase=step.phase.value,
            spans=tuple(
                SpanEntry(
                    session=span.session,
                    start=span.start,
                    end=span.end,
                    phase=_phase(span) if step.phase is Phase.MIXED else None,
                )
                for span in step.spans
            ),
            reset=step.reset,
            actions=action_entries(step.actions),
        )
        for step in plan.steps
    )


def _phase(span: Span) -> Literal["prefill", "decode"]:
    return "decode" if span.phase is Phase.DECODE else "prefill"


def action_entries(actions: tuple[Action, ...]) -> tuple[ActionEntry, ...]:
    """Return the manifest's form of what is done between two steps."""
    return tuple(
        ActionEntry(kind="keep" if action.keep else "finish", session=action.session)
        if isinstance(action, Finish)
        else ActionEntry(kind="reuse", session=action.session, of=action.of, rows=action.rows)
        for action in actions
    )


def stage_entries(prepared: Prepared) -> tuple[StageEntry, ...]:
    """Return the manifest's form of the stages."""
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
    backend, options = prepared.model.backend, prepared.options
    if options.engine != "paged":
        return BackendEntry(
            device=backend.device,
            dtype=DENSE_DTYPES[options.engine],
            triton="off",
            route="dense",
            schedule="program",
            num_threads=torch.get_num_threads(),
            routes={},
            engine=options.engine,
        )
    return BackendEntry(
        device=backend.device,
        dtype=prepared.case.dtype,
        triton=backend.triton,
        route=prepared.route,
        schedule=schedule,
        num_threads=torch.get_num_threads(),
        routes={str(code): name for name, code in ROUTE_CODES.items()},
        launches=prepared.launches,
        fill=options.fill or "zero",
    )


def _gpu(prepared: Prepared) -> str | None:
    device = prepared.model.backend.torch_device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else None
