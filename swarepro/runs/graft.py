"""From ``graft:POINT=BUNDLE`` and a bundle to the factor that puts its tensor into a step."""

from pathlib import Path

import torch

from swarepro import points
from swarepro.backend import torch_dtype
from swarepro.bundle.read import Bundle, open_bundle
from swarepro.bundle.schema import TensorRecord
from swarepro.errors import UsageError
from swarepro.interventions import GRAFT, Factor, graft_factor
from swarepro.points import CapturePoint, PointKind
from swarepro.registry import did_you_mean
from swarepro.runs.prepare import Prepared
from swarepro.runtime.shapes import ExpectedTensor, expected_tensors

_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}


def split_graft(name: str) -> tuple[str, Path]:
    """Return the boundary and the bundle that ``graft:POINT=BUNDLE`` names. Raises UsageError."""
    boundary, equals, bundle = name.removeprefix(GRAFT).partition("=")
    if not (boundary and equals and bundle):
        raise UsageError(
            f"factor {name!r} names no boundary and bundle",
            hint="e.g. --factor graft:L0_attention_output=runs/good",
        )
    return boundary, Path(bundle)


def why_no_graft(point: CapturePoint) -> str | None:
    """Return why nothing can be grafted at ``point``, or None: a run goes on with what is there."""
    if point.kind is PointKind.METADATA:
        return "it is no value: it steers the data path, and a treatment must leave it as it is"
    if point.kind is PointKind.STATE:
        return "what is captured is a copy of the pool's rows, which the run does not go on with"
    if point == points.ROTARY_APPLIED:
        return (
            "what is captured is q and k joined for the capture, which the run does not go on with"
        )
    if point == points.TOKEN:
        return "it is chosen from the logits, after the stages: graft those"
    return None


def read_graft(name: str, prepared: Prepared, step: int) -> Factor:
    """Return the factor that grafts a boundary of ``step`` from a bundle.

    Args:
        name: ``graft:POINT=BUNDLE``.
        prepared: the run that it is grafted into.
        step: of both runs.

    Raises:
        UsageError: no such boundary in the step, one that cannot be grafted, or a tensor that the
            bundle has not, of another place or shape or dtype, or stores a digest of alone.
        BundleError: the bundle is refused.
    """
    boundary, path = split_graft(name)
    plan = prepared.plan
    known = {
        (each.stage, each.session): each
        for each in expected_tensors(plan, prepared.model.config, itemsize=1)
        if each.step == step and each.point.concrete(each.layer) == boundary
    }
    if not known:
        names = {
            each.point.concrete(each.layer)
            for each in expected_tensors(plan, prepared.model.config, itemsize=1)
            if each.step == step
        }
        raise UsageError(
            f"step {step} has no boundary {boundary!r}",
            hint=did_you_mean(boundary, names) or "`swarepro points` lists the boundaries",
        )
    first = next(iter(known.values()))
    reason = why_no_graft(first.point)
    if reason is not None:
        raise UsageError(f"{boundary} cannot be grafted: {reason}")
    bundle = open_bundle(path)
    _check_same_run(bundle, prepared)
    tensors: dict[int, dict[int, torch.Tensor]] = {}
    for (stage, session), wanted in known.items():
        (span,) = (each for each in plan.steps[step].spans if each.session == session)
        start = span.start if wanted.point.dims[0] == "T" else span.end - 1
        record = _record(bundle, prepared, boundary, wanted)
        _check_place(bundle, record, wanted, start, prepared.case.dtype)
        data = torch.from_numpy(bundle.tensor(record).copy())
        tensor = data.view(torch_dtype(prepared.case.dtype)).reshape(wanted.shape)
        own = tensors.setdefault(plan.stages[stage].layer_start, {})
        own[session] = tensor.to(prepared.model.backend.torch_device)
    return graft_factor(name, first.point, first.layer, tensors)


def _check_same_run(bundle: Bundle, prepared: Prepared) -> None:
    theirs = (bundle.manifest.model, bundle.manifest.prompts)
    for what, found, wanted in zip(
        ("model", "prompts"), theirs, (prepared.case.model, prepared.plan.prompts), strict=True
    ):
        if found != wanted:
            raise UsageError(
                f"{bundle.path} is a run of other {what}: a tensor of it says nothing here",
                hint="graft from a run of the same case",
            )


def _record(
    bundle: Bundle, prepared: Prepared, boundary: str, wanted: ExpectedTensor
) -> TensorRecord:
    """Return the record of a boundary: of the same step, session and stage."""
    first_layer = prepared.plan.stages[wanted.stage].layer_start
    for record in bundle.records:
        if (
            record.name == boundary
            and (record.step, record.session) == (wanted.step, wanted.session)
            and bundle.manifest.stages[record.stage].layer_start == first_layer
        ):
            if record.file is None:
                raise UsageError(
                    f"{bundle.path} has of {boundary} at step {record.step} a digest only",
                    hint="run it again with --store tensor",
                )
            return record
    raise UsageError(
        f"{bundle.path} has no {boundary} of step {wanted.step}, session {wanted.session}, in a"
        f" stage that begins at layer {first_layer}",
        hint="run the same case with --capture op --store tensor, and without --points",
    )


def _check_place(
    bundle: Bundle, record: TensorRecord, wanted: ExpectedTensor, start: int, dtype: str
) -> None:
    found = f"{record.dtype} {list(record.shape)} from position {record.row_start}"
    same_dtype = _DTYPES.get(record.dtype) is torch_dtype(dtype)
    if same_dtype and record.shape == wanted.shape and record.row_start == start:
        return
    named = next(key for key, value in _DTYPES.items() if value is torch_dtype(dtype))
    raise UsageError(
        f"{record.name} of step {record.step} is {named} {list(wanted.shape)} from position"
        f" {start}; in {bundle.path} it is {found}",
        hint="graft from a run of the same steps, model and dtype",
    )
