"""`swarepro capture-hf`: a run of transformers as a bundle."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from swarepro.cli import options as o
from swarepro.cli.output import emit
from swarepro.cli.progress import progress_on_stderr
from swarepro.errors import ExitCode


class AttentionName(StrEnum):
    """transformers' attention functions that are known here."""

    EAGER = "eager"
    SDPA = "sdpa"


def capture_hf(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A Hugging Face directory, gguf:PATH, gguf:gemma3-270m, or synthetic:NAME.",
        ),
    ],
    prompt: o.Prompt = None,
    tokens: o.Tokens = None,
    chunk: o.Chunk = None,
    chunks: o.Chunks = None,
    decode: o.Decode = None,
    dtype: o.DtypeName = None,
    attn: Annotated[
        AttentionName,
        typer.Option(help="transformers' attention function.", rich_help_panel="How to run it"),
    ] = AttentionName.EAGER,
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
            help="New folder below --out; by default named by the time.",
            rich_help_panel="What to capture and keep",
        ),
    ] = None,
    as_json: o.AsJson = False,
) -> ExitCode:
    """Run a model through transformers and write a bundle with our capture points.

    Run the same model, prompt and chunks with `swarepro run` and compare both with
    `swarepro diff-boundaries`. Needs transformers: the extra hf.
    """
    from swarepro import api
    from swarepro.cli.assemble import CaseOptions, RunFlags, assemble
    from swarepro.cli.values import check_run_id
    from swarepro.report import run_document, run_report

    what = CaseOptions(
        model=model,
        prompt=prompt,
        tokens=tokens,
        chunk=chunk,
        chunks=chunks,
        decode=decode,
        dtype=dtype,
    )
    flags = RunFlags(capture=capture, store=store, points=points, max_bundle_bytes=max_bundle_bytes)
    spec, run_options = assemble(None, what, flags)
    with progress_on_stderr() as progress:
        result = api.capture_hf(
            spec,
            out=out,
            run_id=None if run_id is None else check_run_id(run_id),
            options=run_options,
            attention=attn.value,
            progress=progress,
        )
    manifest, bundle = result.manifest, result.bundle
    told: dict[str, Any] = {
        "bundle": bundle,
        "size_bytes": sum(path.stat().st_size for path in bundle.rglob("*") if path.is_file()),
        "texts": result.texts,
        "unmatched": result.unmatched,
    }
    emit(
        as_json=as_json,
        document=lambda: run_document(manifest, **told),
        report=lambda: run_report(manifest, **told),
    )
    return ExitCode.NOTHING_FOUND
