"""From a case and options to all that a run needs: plan, weights, capture. Nothing runs here."""

from collections.abc import Sequence
from dataclasses import dataclass

from swarepro.backend import choose_device, physical_memory, torch_dtype
from swarepro.build import Model, load_model
from swarepro.bundle.schema import CaptureEntry
from swarepro.case import CaseSpec
from swarepro.checkpoint import ModelConfig, open_checkpoint
from swarepro.checkpoint.contract import Checkpoint
from swarepro.errors import CaseError, UsageError
from swarepro.faults import FAULTS
from swarepro.options import DENSE_DTYPES, CaptureOptions, Progress, RunOptions, no_progress
from swarepro.plan import (
    Phase,
    RunPlan,
    plan_sessions,
    plan_stages,
    resolve_prompt,
    with_images,
)
from swarepro.points import Level
from swarepro.runs.estimate import estimate_capture
from swarepro.runtime.groups import stage_groups
from swarepro.runtime.routes import backend_for, resolve_route
from swarepro.runtime.routes.launches import Launches, describe_launches
from swarepro.runtime.schedule import resolve_schedule
from swarepro.runtime.shapes import expected_tensors
from swarepro.script import plan_script

_MOST_OF_MEMORY = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A case that is ready to run, any number of times.

    Attributes:
        case: as it was asked for.
        plan: its steps, stages and prompts.
        model: loaded weights.
        capture: what is captured.
        options: how it runs; the route is resolved.
        route: the attention implementation.
        schedule: of a single run; repeats have schedules of their own.
        launches: of the route's kernels.
        estimated_bytes: of one bundle.
        unmatched: globs of the points that were asked for which match nothing of this run.
    """

    case: CaseSpec
    plan: RunPlan
    model: Model
    capture: CaptureEntry
    options: RunOptions
    route: str
    schedule: str
    launches: Launches
    estimated_bytes: int
    unmatched: tuple[str, ...] = ()


def prepare(
    case: CaseSpec,
    options: RunOptions,
    *,
    copies: int = 1,
    needs_tensors: bool = False,
    progress: Progress,
) -> Prepared:
    """Check everything that can be checked, then load the weights.

    Args:
        case: what to run.
        options: how.
        copies: bundles that will lie on disk at the same time, for the size budget; 0 = none.
        needs_tensors: digests would not do; an error does not advise them.
        progress: told when weights are loaded.

    Raises:
        SwareproError: whatever is wrong, by name, before any weight is read where that is possible.
    """
    _check_engine(options)
    named = () if case.fault is None else (case.fault,)
    for fault in (*options.faults, *case.background, *named):
        FAULTS.get(fault)
    device = choose_device(options.device)
    route = resolve_route(options.route, device=device)
    backend = backend_for(route, device)
    schedule = resolve_schedule(options.schedule, triton=backend.triton)
    backend.activate()
    checkpoint = open_checkpoint(case.model)
    plan = plan_case(case, checkpoint, progress=progress)
    if plan.stages[0].layer_start > 0 and options.recv is None:
        raise UsageError(
            f"a stage that starts at layer {plan.stages[0].layer_start} needs the hidden states"
            " that it receives",
            hint="`swarepro run CASE --recv BUNDLE` takes them from a bundle that stores them",
        )
    launches = describe_launches(checkpoint.config, dtype=case.dtype, backend=backend)
    computed = DENSE_DTYPES.get(options.engine, case.dtype)
    check_memory(plan, checkpoint.config, dtype=computed, on_cpu=backend.device == "cpu")
    capture = capture_entry(options.capture)
    estimate = estimate_capture(
        expected_tensors(plan, checkpoint.config, itemsize=torch_dtype(computed).itemsize),
        capture,
        last_stage=len(plan.stages) - 1,
        engine=None if options.engine == "paged" else f"the engine {options.engine}",
    )
    check_budget(
        estimate.num_bytes * copies,
        options.max_bundle_bytes,
        copies=copies,
        could_be_digests=capture.store == "tensor" and not needs_tensors,
    )
    progress(f"loading {case.model}", 0, 1)
    model = load_model(checkpoint, plan, dtype=case.dtype, backend=backend)
    progress(f"loading {case.model}", 1, 1)
    return Prepared(
        case=case,
        plan=plan,
        model=model,
        capture=capture,
        options=options,
        route=route,
        schedule=schedule,
        launches=launches,
        estimated_bytes=estimate.num_bytes,
        unmatched=estimate.unmatched,
    )


def _check_engine(options: RunOptions) -> None:
    """Refuse what a run without pool, mapping, store and route cannot have."""
    if options.engine == "paged":
        return
    given = {
        "fault": ", ".join(options.faults),
        "route": "" if options.route == "auto" else options.route,
        "schedule": "" if options.schedule == "auto" else options.schedule,
        "fill": options.fill or "",
        "slots to watch": "ownership on" if options.ownership else "",
    }
    for what, value in given.items():
        if value:
            raise UsageError(
                f"the engine {options.engine} has no {what}: {value} was asked for",
                hint="leave it out, or run the stage runtime: --engine paged",
            )


def plan_case(
    case: CaseSpec, checkpoint: Checkpoint, *, progress: Progress = no_progress
) -> RunPlan:
    """Lay out the steps and stages of ``case`` on the checkpoint's model. Raises CaseError."""
    config = checkpoint.config
    stages = plan_stages(stages=case.stages, layers=case.layers, num_layers=config.num_layers)
    prompts = []
    for index, session in enumerate(case.sessions):
        prompt, where = session.prompt, f"sessions[{index}]"
        if prompt.random is not None and prompt.random > case.capacity:
            raise CaseError(
                f"{where}: {prompt.random} prompt rows; the capacity is {case.capacity}",
                hint="raise the capacity or shorten the prompt",
            )
        if prompt.text is not None:
            tokenizer = checkpoint.tokenizer(notify=lambda what: progress(what, 0, 1))
            tokens = tuple(tokenizer.encode(prompt.text))
        else:
            tokens = resolve_prompt(prompt, vocab_size=config.vocab_size, where=where)
        prompts.append(tokens)
    swa_capacity = case.capacity if case.swa_capacity is None else case.swa_capacity
    for what, slots in (("capacity", case.capacity), ("swa_capacity", swa_capacity)):
        if slots % case.page_size:
            below = slots // case.page_size * case.page_size
            sizes = [size for size in (below, below + case.page_size) if size]
            raise CaseError(
                f"{what} {slots} is no whole number of pages of {case.page_size}",
                hint=f"use {' or '.join(map(str, sizes))}",
            )
    _check_positions(case, prompts, config)
    if case.script:
        steps, final_actions = plan_script(
            case.script, tuple(prompts), capacity=case.capacity, page_size=case.page_size
        )
    else:
        steps = plan_sessions(case.sessions, tuple(prompts), capacity=case.capacity)
        final_actions = ()
    images = [session.images for session in case.sessions]
    if any(images) and not config.images_in:
        raise CaseError(
            f"a prompt has images, and {config.model_type} is a model of text alone",
            hint="take a Gemma 3 or 4 model, or leave images out",
        )
    plan = RunPlan(
        prompts=tuple(prompts),
        steps=with_images(steps, images, prompts),
        stages=stages,
        capacity=case.capacity,
        swa_capacity=swa_capacity,
        page_size=case.page_size,
        evict=case.evict,
        final_actions=final_actions,
    )
    spans = [span for step in plan.steps for span in step.spans]
    has_decode = any(span.phase is Phase.DECODE for span in spans)
    if has_decode and stages[0].has_embedding and not stages[-1].has_head:
        raise CaseError(
            f"decode steps need the tokens of the last stage, and layers 0:{stages[-1].layer_end}"
            " do not reach the head",
            hint="run without decode steps, or run all layers",
        )
    _check_longest(max(span.end for span in spans), config)
    return plan


def _check_positions(
    case: CaseSpec, prompts: Sequence[tuple[int, ...]], config: ModelConfig
) -> None:
    """Refuse sessions that decode beyond the model before anything is laid out."""
    decoded = [session.decode for session in case.sessions]
    for entry in case.script:
        for rows in entry.rows:
            if rows.decode and rows.session < len(decoded):
                decoded[rows.session] += entry.times
    ends = [len(tokens) + tail for tokens, tail in zip(prompts, decoded, strict=True) if tail]
    _check_longest(max((end for end in ends if end <= case.capacity), default=0), config)


def _check_longest(longest: int, config: ModelConfig) -> None:
    if longest > config.max_position_embeddings:
        raise CaseError(
            f"a session uses {longest} positions; the model's max_position_embeddings is"
            f" {config.max_position_embeddings}",
            hint="shorten the session, or take a model with a longer context",
        )


def capture_entry(capture: CaptureOptions) -> CaptureEntry:
    """Return the manifest's form of the capture options."""
    return CaptureEntry(
        level=Level(capture.level),
        store=capture.store,
        points=capture.points,
        layers=capture.layers,
        steps=capture.steps,
    )


def check_memory(plan: RunPlan, config: ModelConfig, *, dtype: str, on_cpu: bool) -> None:
    """Raise UsageError when the KV pools alone would take most of the CPU's memory."""
    needed = 0
    for stage in plan.stages:
        for spec in stage_groups(config, stage):
            capacity = plan.capacity if spec.sliding_window is None else plan.swa_capacity
            row = 2 * spec.num_kv_heads * spec.head_dim * torch_dtype(dtype).itemsize
            needed += len(spec.layer_ids) * (capacity + plan.page_size) * row
    if on_cpu and needed > _MOST_OF_MEMORY * physical_memory():
        raise UsageError(
            f"the KV pools for {plan.capacity} positions would take {_size(needed)};"
            f" this machine has {_size(physical_memory())}",
            hint="choose a smaller capacity, or fewer layers",
        )


def check_budget(estimate: int, budget: int, *, copies: int, could_be_digests: bool) -> None:
    """Raise UsageError when ``estimate`` bytes of ``copies`` bundles exceed the budget.

    ``could_be_digests``: tensors are stored, and need not be.
    """
    if estimate <= budget:
        return
    what = "the bundle" if copies == 1 else f"{copies} bundles"
    raise UsageError(
        f"{what} would take about {_size(estimate)}; the budget is {_size(budget)}",
        hint="store digests (--store digest), choose --points, or raise --max-bundle-bytes"
        if could_be_digests
        else "choose --points, or raise --max-bundle-bytes",
    )


def _size(num_bytes: int) -> str:
    """Return ``num_bytes`` with the largest binary unit that leaves at least 1."""
    size, unit = float(num_bytes), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{num_bytes} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
