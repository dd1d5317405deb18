"""`swarepro run`: run a case once and keep its bundle."""

from pathlib import Path
from typing import Annotated

import typer

from swarepro.cli import options as o
from swarepro.cli.output import emit
from swarepro.cli.progress import progress_on_stderr
from swarepro.errors import ExitCode


def run(
    case: o.CaseName = None,
    model: o.Model = None,
    prompt: o.Prompt = None,
    tokens: o.Tokens = None,
    chunk: o.Chunk = None,
    chunks: o.Chunks = None,
    decode: o.Decode = None,
    stages: o.Stages = None,
    layers: o.Layers = None,
    recv: o.Recv = None,
    fault: o.FaultNames = None,
    unpatched: o.Unpatched = False,
    schedule: o.Schedule = None,
    dtype: o.DtypeName = None,
    device: o.Device = None,
    route: o.Route = None,
    capacity: o.Capacity = None,
    swa_capacity: o.SwaCapacity = None,
    capture: o.Capture = None,
    store: o.StoreKind = None,
    points: o.PointGlobs = None,
    max_bundle_bytes: o.MaxBundleBytes = None,
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Folder of bundles.", rich_help_panel="What to capture and keep"
        ),
    ] = Path("runs"),
    run_id: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="New folder below --out; by default named by case, faults and time.",
            rich_help_panel="What to capture and keep",
        ),
    ] = None,
    as_json: o.AsJson = False,
) -> ExitCode:
    """Run a case once and write its bundle.

    CASE is a shipped case or a TOML file, with options over it; without one, --model and a prompt
    say what to run. Exit code 1 when the ownership report has violations.
    """
    from swarepro import api
    from swarepro.cli.assemble import CaseOptions, RunFlags, assemble
    from swarepro.cli.values import check_run_id
    from swarepro.report import run_document, run_report

    spec, run_options = assemble(
        case,
        CaseOptions(
            model=model,
            prompt=prompt,
            tokens=tokens,
            chunk=chunk,
            chunks=chunks,
            decode=decode,
            stages=stages,
            layers=layers,
            dtype=dtype,
            capacity=capacity,
            swa_capacity=swa_capacity,
        ),
        RunFlags(
            faults=tuple(fault or ()),
            unpatched=unpatched,
            schedule=schedule,
            capture=capture,
            store=store,
            points=points,
            device=device,
            route=route,
            max_bundle_bytes=max_bundle_bytes,
            recv=recv,
        ),
    )
    with progress_on_stderr() as progress:
        result = api.run_case(
            spec,
            out=out,
            run_id=None if run_id is None else check_run_id(run_id),
            options=run_options,
            progress=progress,
        )
    manifest, bundle = result.manifest, result.bundle
    size_bytes = sum(path.stat().st_size for path in bundle.rglob("*") if path.is_file())
    emit(
        as_json=as_json,
        document=lambda: run_document(
            manifest, bundle=bundle, size_bytes=size_bytes, texts=result.texts
        ),
        report=lambda: run_report(
            manifest, bundle=bundle, size_bytes=size_bytes, texts=result.texts
        ),
    )
    return ExitCode.FINDING if result.violations else ExitCode.NOTHING_FOUND
