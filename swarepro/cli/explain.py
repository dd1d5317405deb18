"""`swarepro explain`: which known defect gives what a run has where it parts from another."""

from pathlib import Path
from typing import Annotated

import typer

from swarepro.cli import options as o
from swarepro.cli.output import emit
from swarepro.cli.progress import progress_on_stderr
from swarepro.errors import ExitCode


def explain(
    baseline: Annotated[
        Path, typer.Argument(metavar="BASELINE", help="Bundle of the run taken as right.")
    ],
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="Bundle of the run that went wrong.")
    ],
    floor: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Noise floor (`swarepro calibrate`), where runs cannot agree to the byte.",
        ),
    ] = None,
    as_json: o.AsJson = False,
) -> ExitCode:
    """Hold every known defect against the first boundary where two runs part.

    The case in the bundle is run once for each. Exit code 1 also where none fits: the runs part.
    """
    from swarepro import api
    from swarepro.report.explanation import explanation_document, explanation_report

    with progress_on_stderr() as progress:
        found = api.explain_runs(baseline, target, floor=floor, progress=progress)
    emit(
        as_json=as_json,
        document=lambda: explanation_document(found),
        report=lambda: explanation_report(found),
    )
    return ExitCode.FINDING
