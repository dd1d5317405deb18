"""`swarepro inspect`: what a bundle holds, and whether it is whole."""

from pathlib import Path
from typing import Annotated

import typer

from swarepro.cli import options as o
from swarepro.cli.output import emit
from swarepro.cli.progress import progress_on_stderr
from swarepro.errors import ExitCode


def inspect(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="Folder of a finished run.")],
    no_verify: Annotated[
        bool, typer.Option("--no-verify", metavar="", help="Do not hash the stored tensors.")
    ] = False,
    as_json: o.AsJson = False,
) -> ExitCode:
    """Read a bundle, hash its tensors against their records, and say what it holds.

    Exit code 1 when its ownership report has violations, 2 when it is refused.
    """
    from swarepro import api
    from swarepro.report import inspect_document, inspect_report

    with progress_on_stderr() as progress:
        found = api.inspect_bundle(bundle, verify=not no_verify, progress=progress)
    manifest, records, verified = found.manifest, found.records, found.verified
    emit(
        as_json=as_json,
        document=lambda: inspect_document(manifest, records, bundle=bundle, verified=verified),
        report=lambda: inspect_report(manifest, records, bundle=bundle, verified=verified),
    )
    violations = any(stage.violations for stage in manifest.ownership)
    return ExitCode.FINDING if violations else ExitCode.NOTHING_FOUND
