"""`swarepro run`: run a case once and keep its bundle."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swarepro.cli import options as o
from swarepro.cli.output import emit
from swarepro.cli.progress import progress_on_stderr
from swarepro.cli.with_case import with_case
from swarepro.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from swarepro.api import RunOptions
    from swarepro.case import CaseSpec


_KEEP = "What to capture and keep"
_AGAINST = "Against a run before"


@with_case("store")
def run(
    spec: "CaseSpec",
    run_options: "RunOptions",
    *,
    store: o.StoreKind = None,
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Folder of bundles.", rich_help_panel=_KEEP),
    ] = Path("runs"),
    engine: Annotated[
        o.EngineName,
        typer.Option(
            help="The stage runtime, or the dense reference in float32 or float64.",
            rich_help_panel="How to run it",
        ),
    ] = o.EngineName.PAGED,
    run_id: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="New folder below --out; by default named by case, faults and time.",
            rich_help_panel=_KEEP,
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="BUNDLE",
            help="Compare each digest with that of BUNDLE as the run goes, stop after the step of"
            " the first mismatch, and store tensors of it and its inputs alone.",
            rich_help_panel=_AGAINST,
        ),
    ] = None,
    go_on: Annotated[
        bool,
        typer.Option(
            "--go-on",
            metavar="",
            help="Run all steps, and list every boundary that differs.",
            rich_help_panel=_AGAINST,
        ),
    ] = False,
    as_json: o.AsJson = False,
) -> ExitCode:
    """Run a case once and write its bundle.

    CASE is a shipped case or a TOML file, with options over it; without one, --model and a prompt
    say what to run. Exit code 1 when the ownership report has violations, or when the run differs
    from the one that it is run against; 2 when nothing could be compared.
    """
    from swarepro import api
    from swarepro.cli.values import check_run_id
    from swarepro.report import against_document, against_report, run_document, run_report

    _check_together(against, store, go_on=go_on)
    run_options = replace(run_options, engine=engine.value)
    if store is not None:
        capture = replace(run_options.capture, store=store.value)
        run_options = replace(run_options, capture=capture)
    name = None if run_id is None else check_run_id(run_id)
    with progress_on_stderr() as progress:
        if against is None:
            result = api.run_case(
                spec, out=out, run_id=name, options=run_options, progress=progress
            )
        else:
            result = api.run_against(
                spec,
                against,
                out=out,
                run_id=name,
                go_on=go_on,
                options=run_options,
                progress=progress,
            )
    manifest, bundle, compared = result.manifest, result.bundle, result.against
    told: dict[str, Any] = {
        "bundle": bundle,
        "size_bytes": sum(path.stat().st_size for path in bundle.rglob("*") if path.is_file()),
        "texts": result.texts,
        "unmatched": result.unmatched,
    }
    if compared is None:
        emit(
            as_json=as_json,
            document=lambda: run_document(manifest, **told),
            report=lambda: run_report(manifest, **told),
        )
        return ExitCode.FINDING if result.violations else ExitCode.NOTHING_FOUND
    emit(
        as_json=as_json,
        document=lambda: against_document(manifest, compared, **told),
        report=lambda: against_report(manifest, compared, **told),
    )
    verdict = compared.divergence.verdict
    if verdict == "DIVERGED" or result.violations:
        return ExitCode.FINDING
    return ExitCode.CANNOT_JUDGE if verdict == "INCOMPARABLE" else ExitCode.NOTHING_FOUND


def _check_together(against: Path | None, store: o.Store | None, *, go_on: bool) -> None:
    if against is None and go_on:
        raise UsageError("--go-on goes with --against", hint="name a bundle: --against BUNDLE")
    if against is not None and store is o.Store.TENSOR:
        raise UsageError(
            "--store tensor and --against exclude each other: tensors are stored of the first"
            " mismatch and its inputs",
            hint="leave one of them out",
        )
