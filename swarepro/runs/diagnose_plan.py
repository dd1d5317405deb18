"""The plan of a diagnosis: all that is checked and decided before anything runs."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch

from swarepro.backend import choose_device
from swarepro.bundle.digest import digest_bytes
from swarepro.bundle.environment import read_environment
from swarepro.bundle.read import Bundle, open_bundle
from swarepro.bundle.schema import Environment, TensorRecord
from swarepro.capture import MemorySink
from swarepro.case import CaseSpec
from swarepro.errors import BundleError, IncomparableError, UsageError
from swarepro.evidence import ledger
from swarepro.evidence.schema import (
    HowRun,
    Plan,
    PlannedCase,
    PlannedFactor,
    PlannedReference,
)
from swarepro.interventions import FACTORS, GRAFT
from swarepro.options import Progress, RunOptions
from swarepro.points import PointKind
from swarepro.runs.factor_trials import evidence_options
from swarepro.runs.once import execution, step_entries
from swarepro.runs.prepare import Prepared, prepare
from swarepro.runs.repeat import schedule_of
from swarepro.runtime.routes import resolve_route

_CHANCE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """How much a diagnosis runs.

    Attributes:
        processes: R, fresh ones of the baseline, for each case.
        repeats: N, in each of them.
        trials: of the replay, and of each arm of a factor.
        factors: names; empty = each that there is.
        reference: bundle that a deterministic anchor is compared with, or None.
    """

    processes: int = 2
    repeats: int = 3
    trials: int = 6
    factors: tuple[str, ...] = ()
    reference: Path | None = None


def plan_diagnosis(
    anchors: Sequence[CaseSpec],
    control: CaseSpec | None,
    *,
    folder: Path,
    ladder: Ladder,
    options: RunOptions,
    progress: Progress,
) -> tuple[Plan, tuple[TensorRecord, ...]]:
    """Return the plan, and the records of the reference; nothing is written.

    Raises:
        SwareproError: a case cannot be run, the folder exists, or options contradict each other.
    """
    cases = [*anchors, *([] if control is None else [control])]
    _check(cases, ladder, folder)
    if ladder.reference is not None and len(anchors) > 1:
        raise UsageError(
            f"a reference is of one case, and {len(anchors)} are named",
            hint="diagnose them one by one",
        )
    device = choose_device(options.device)
    how = HowRun(
        faults=options.faults,
        device=device,
        route=resolve_route(options.route, device=device),
        ownership=options.is_watched,
    )
    factors = tuple(
        _planned_factor(name) for name in dict.fromkeys(ladder.factors or FACTORS.names())
    )
    prepared = [
        prepare(case, evidence_options(options), copies=0, progress=progress) for case in cases
    ]
    reference = None if ladder.reference is None else open_bundle(ladder.reference)
    records = () if reference is None else reference.records
    if reference is not None:
        _check_reference(reference, prepared[0])
    plan = Plan(
        written=ledger.now(),
        code=code_digest(),
        environment=environment_of(device),
        anchors=tuple(_planned(case) for case in anchors),
        control=None if control is None else _planned(control),
        how=how,
        processes=ladder.processes,
        repeats=ladder.repeats,
        trials=ladder.trials,
        factors=factors,
        schedules=tuple(
            schedule_of(prepared[0], index)
            for index in range(max(ladder.processes * ladder.repeats, ladder.trials))
        ),
        chance=_CHANCE,
        reference=None
        if reference is None
        else PlannedReference(
            source=str(ladder.reference), sha256=ledger.sha256(msgspec.json.encode(records))
        ),
    )
    return plan, records


def environment_of(device: str) -> Environment:
    """Return what a diagnosis on ``device`` runs in."""
    gpu = torch.cuda.get_device_name(device) if device.startswith("cuda") else None
    return read_environment(gpu=gpu)


def code_digest() -> str:
    """Return the SHA-256 of the source files of the program, kernels included."""
    parts = []
    for package in ("swarepro", "swarepro_kernels"):
        found = importlib.import_module(package)
        root = Path(str(found.__file__)).parent
        parts += [(path.relative_to(root).as_posix(), path) for path in root.rglob("*.py")]
    return ledger.sha256(
        msgspec.json.encode(
            [(name, ledger.sha256(path.read_bytes())) for name, path in sorted(parts)]
        )
    )


def _check(cases: Sequence[CaseSpec], ladder: Ladder, folder: Path) -> None:
    if folder.exists():
        raise BundleError(
            f"{folder} exists already; evidence is never overwritten",
            hint="choose another --out, or go on with a diagnosis that was cut off: --resume DIR",
        )
    names = [case.name for case in cases]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UsageError(f"the case {twice[0]!r} is named twice", hint="name each case once")
    if ladder.processes * ladder.repeats < 2 or ladder.trials < 2:
        raise UsageError(
            f"{ladder.processes} x {ladder.repeats} repeats and {ladder.trials} trials: nothing can"
            " vary in fewer than 2",
            hint="raise --repeats or --trials",
        )


def _planned_factor(name: str) -> PlannedFactor:
    """Raise UsageError for a name that is no factor's."""
    if name.startswith(GRAFT):
        raise UsageError(
            f"{name}: a graft is of one case, and its bundle is no part of the evidence",
            hint="try it with `swarepro intervene`",
        )
    factor = FACTORS.get(name)
    return PlannedFactor(
        name=name,
        summary=factor.summary,
        compared="tokens" if factor.rounds_differently else "bytes",
        own_steps=factor.steps is not None,
        schedule=factor.schedule,
    )


def _planned(case: CaseSpec) -> PlannedCase:
    # Through JSON: the digest is of what the plan holds.
    data = msgspec.json.decode(msgspec.json.encode(case))
    return PlannedCase(name=case.name, digest=digest_bytes(msgspec.json.encode(data)), case=data)


def _check_reference(reference: Bundle, anchor: Prepared) -> None:
    """Raise IncomparableError unless the reference computes what the anchor does."""
    manifest = reference.manifest
    pairs: dict[str, tuple[object, object]] = {
        "model": (manifest.model, anchor.case.model),
        "prompts": (manifest.prompts, anchor.plan.prompts),
        "dtype": (manifest.backend.dtype, anchor.case.dtype),
        "steps": (manifest.steps, step_entries(anchor.plan)),
        "stages": (
            [(stage.layer_start, stage.layer_end) for stage in manifest.stages],
            [(stage.layer_start, stage.layer_end) for stage in anchor.plan.stages],
        ),
    }
    differ = [name for name, (theirs, own) in pairs.items() if theirs != own]
    if differ:
        raise IncomparableError(
            f"the reference {reference.path} has other {', '.join(differ)} than {anchor.case.name}",
            hint="make it from the same case: `swarepro run CASE --store digest`",
        )
    values = [record for record in reference.records if record.kind is PointKind.VALUE]
    if not values:
        raise IncomparableError(
            f"the reference {reference.path} captured no value", hint="make it with --capture op"
        )
    own = execution(anchor, MemorySink([]), schedule=schedule_of(anchor, 0)).row_algorithm
    if values[0].algorithm != own:
        raise IncomparableError(
            f"the reference {reference.path} has {values[0].algorithm} digests; this run takes"
            f" {own}",
            hint="make it on the same device",
        )
