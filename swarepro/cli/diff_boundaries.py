"""`swarepro diff-boundaries`: where two runs part."""

from pathlib import Path
from typing import Annotated

import typer

from swarepro.cli import options as o
from swarepro.cli.output import emit
from swarepro.cli.progress import progress_on_stderr
from swarepro.errors import ExitCode

_TOLERANCE = "Tolerance (none: bitwise)"


def diff_boundaries(
    baseline: Annotated[
        Path, typer.Argument(metavar="BASELINE", help="Bundle of the run taken as right.")
    ],
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="Bundle of the run compared with it.")
    ],
    align: Annotated[
        o.Align | None,
        typer.Option(
            help="How boundaries are matched; by default step for equal steps, else position.",
        ),
    ] = None,
    atol: Annotated[
        float | None,
        typer.Option(metavar="F", help="Absolute; goes with --rtol.", rich_help_panel=_TOLERANCE),
    ] = None,
    rtol: Annotated[
        float | None,
        typer.Option(metavar="F", help="Relative; goes with --atol.", rich_help_panel=_TOLERANCE),
    ] = None,
    max_ulp: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Units in the last place instead.",
            rich_help_panel=_TOLERANCE,
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", metavar="", help="Hash every stored tensor against its record first."
        ),
    ] = False,
    as_json: o.AsJson = False,
) -> ExitCode:
    """Say where two runs part: the earliest boundary, the earliest bad store, the value it harms.

    Exit code 0 identical or within tolerance, 1 diverged, 2 nothing could be judged.
    """
    from swarepro import api
    from swarepro.report import diff_document, diff_report, make_tolerance

    tolerance = make_tolerance(atol=atol, rtol=rtol, max_ulp=max_ulp)
    with progress_on_stderr() as progress:
        divergence = api.diff_runs(
            baseline,
            target,
            align=None if align is None else align.value,
            tolerance=tolerance,
            verify=verify,
            progress=progress,
        )
    emit(
        as_json=as_json,
        document=lambda: diff_document(divergence),
        report=lambda: diff_report(divergence),
    )
    return {
        "DIVERGED": ExitCode.FINDING,
        "INCOMPARABLE": ExitCode.CANNOT_JUDGE,
    }.get(divergence.verdict, ExitCode.NOTHING_FOUND)
