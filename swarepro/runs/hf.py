"""Runs a case through transformers and writes an ordinary bundle."""

from pathlib import Path

import msgspec
import torch

from swarepro.backend import torch_dtype
from swarepro.bundle.environment import read_environment
from swarepro.bundle.schema import BackendEntry, Manifest, StageEntry
from swarepro.bundle.write import BundleWriter
from swarepro.capture import Recorder
from swarepro.case import CaseSpec
from swarepro.checkpoint import ModelConfig, open_checkpoint
from swarepro.errors import UsageError
from swarepro.hf import ABSENT, HfModel, Shapes, load_transformers, run_transformers
from swarepro.options import HfAttention, Progress, RunOptions
from swarepro.plan import Reuse, RunPlan
from swarepro.runs.estimate import estimate_capture
from swarepro.runs.once import action_entries, step_entries
from swarepro.runs.prepare import capture_entry, check_budget, plan_case
from swarepro.runtime.shapes import ExpectedTensor, expected_tensors


def capture_transformers(
    case: CaseSpec,
    directory: Path,
    *,
    options: RunOptions,
    attention: HfAttention,
    progress: Progress,
) -> tuple[Manifest, tuple[str, ...]]:
    """Run ``case`` through transformers on the CPU and write the bundle ``directory``.

    Returns its manifest, and the globs of points that match nothing of this run.

    Args:
        case: what to run; transformers runs all layers in one stage, and has no pool.
        directory: of the bundle; after an error nothing of it is left.
        options: what is captured; nothing of how our own runtime runs.
        attention: transformers' attention function.
        progress: told of loading and of every step.

    Raises:
        UsageError: the case or the options ask for what transformers has not.
        EngineError: transformers is missing, or its model is not as the table of it says.
    """
    _refuse(case, options)
    checkpoint = open_checkpoint(case.model)
    # Nothing but the model bounds a session: what our pools would hold is no part of this run.
    longest = checkpoint.config.max_position_embeddings
    roomy = msgspec.structs.replace(case, capacity=longest, swa_capacity=None, page_size=1)
    plan = plan_case(roomy, checkpoint, progress=progress)
    _refuse_reuse(plan)
    capture, dtype = capture_entry(options.capture), torch_dtype(case.dtype)
    expected = [
        tensor
        for tensor in expected_tensors(plan, checkpoint.config, itemsize=dtype.itemsize)
        if tensor.point.name not in ABSENT
    ]
    estimate = estimate_capture(expected, capture, last_stage=0, engine="transformers")
    check_budget(
        estimate.num_bytes,
        options.max_bundle_bytes,
        copies=1,
        could_be_digests=capture.store == "tensor",
    )
    progress(f"loading {case.model} into transformers", 0, 1)
    hf = load_transformers(checkpoint, dtype=dtype, attention=attention)
    progress(f"loading {case.model} into transformers", 1, 1)
    total = len(plan.steps)
    with BundleWriter(directory) as writer:
        tokens = run_transformers(
            plan,
            hf,
            num_layers=checkpoint.config.num_layers,
            dtype=dtype,
            recorder=Recorder(capture, writer),
            shapes=_shapes(expected),
            on_step=lambda step: progress(f"running {case.name}", step.index + 1, total),
        )
        manifest = writer.finish(
            case=msgspec.to_builtins(case),
            model=case.model,
            num_layers=checkpoint.config.num_layers,
            steps=step_entries(plan),
            stages=_stages(checkpoint.config),
            capture=capture,
            backend=_backend(hf, case.dtype),
            faults=(),
            environment=read_environment(),
            prompts=plan.prompts,
            recv=None,
            tokens=tokens,
            ownership=(),
            shadow=False,
            final_actions=action_entries(plan.final_actions),
        )
    return manifest, estimate.unmatched


def _refuse(case: CaseSpec, options: RunOptions) -> None:
    asked = {
        "a stage alone": case.layers,
        "stages": case.stages,
        "faults": ", ".join((*case.background, *options.faults)),
        "a route": "" if options.route == "auto" else options.route,
        "a schedule": "" if options.schedule == "auto" else options.schedule,
        "a fill": options.fill,
        "slots to watch": "ownership on" if options.ownership else "",
        "images": ", ".join(str(list(each)) for own in case.sessions for each in own.images),
        "received hidden states": options.recv,
        "another engine": "" if options.engine == "paged" else options.engine,
    }
    for what, value in asked.items():
        if value:
            raise UsageError(
                f"a run of transformers has not {what}: {value} was asked for",
                hint="leave it out",
            )


def _refuse_reuse(plan: RunPlan) -> None:
    actions = [action for step in plan.steps for action in step.actions]
    for action in (*actions, *plan.final_actions):
        if isinstance(action, Reuse):
            raise UsageError(
                f"session {action.session} takes over rows of session {action.of}, and a run of"
                " transformers has no such reuse",
                hint="give every session its own prompt",
            )


def _shapes(expected: list[ExpectedTensor]) -> Shapes:
    shapes: dict[tuple[int, int], dict[tuple[str, int | None], tuple[int, ...]]] = {}
    for tensor in expected:
        own = shapes.setdefault((tensor.step, tensor.session), {})
        own[tensor.point.name, tensor.layer] = tensor.shape
    return shapes


def _stages(config: ModelConfig) -> tuple[StageEntry, ...]:
    """Return the one stage; what transformers read is not known."""
    whole = StageEntry(
        layer_start=0, layer_end=config.num_layers, role="single", bytes_read=0, header_bytes=0
    )
    return (whole,)


def _backend(hf: HfModel, dtype: str) -> BackendEntry:
    return BackendEntry(
        device="cpu",
        dtype=dtype,
        triton="off",
        route=hf.attention,
        schedule="program",
        num_threads=torch.get_num_threads(),
        routes={},
        engine=f"transformers {hf.version}",
    )
