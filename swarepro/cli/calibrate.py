"""`swarepro calibrate`: how far legal variants of one computation are apart."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swarepro.cli import options as o
from swarepro.cli.output import emit
from swarepro.cli.progress import progress_on_stderr
from swarepro.cli.with_case import with_case
from swarepro.errors import ExitCode

if TYPE_CHECKING:
    from swarepro.api import RunOptions
    from swarepro.case import CaseSpec


@with_case("fault", "unpatched", "ownership", "capture", "store", "schedule")
def calibrate(
    spec: "CaseSpec",
    run_options: "RunOptions",
    *,
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="The floor, a JSON file; it must not exist.",
            rich_help_panel="What to capture and keep",
        ),
    ] = Path("floor.json"),
    as_json: o.AsJson = False,
) -> ExitCode:
    """Run a case beside its legal variants and keep how far they are apart: the noise floor.

    Variants change chunks, route, padding, the order of sums, and the precision; tokens and weights
    stay. `diff-boundaries --floor` tells noise from a wrong value by it.
    """
    from swarepro import api
    from swarepro.report.calibrate import calibrate_document, calibrate_report

    with progress_on_stderr() as progress:
        floor = api.calibrate_case(spec, out=out, options=run_options, progress=progress)
    emit(
        as_json=as_json,
        document=lambda: calibrate_document(floor, out=out),
        report=lambda: calibrate_report(floor, out=out),
    )
    return ExitCode.NOTHING_FOUND
