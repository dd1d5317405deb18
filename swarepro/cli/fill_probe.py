"""`swarepro fill-probe`: whether a run depends on memory that nobody wrote."""

from typing import TYPE_CHECKING

from swarepro.cli import options as o
from swarepro.cli.output import emit
from swarepro.cli.progress import progress_on_stderr
from swarepro.cli.with_case import with_case
from swarepro.errors import ExitCode

if TYPE_CHECKING:
    from swarepro.api import RunOptions
    from swarepro.case import CaseSpec


@with_case("store", "max_bundle_bytes")
def fill_probe(
    spec: "CaseSpec", run_options: "RunOptions", *, as_json: o.AsJson = False
) -> ExitCode:
    """Run a case with pools and scratch filled with zeros, a large value and NaN.

    No boundary may depend on the fill. What depends on NaN alone was multiplied by zero in a masked
    lane; what depends on the large value was read. Exit code 1 when a boundary depends on it.
    """
    from swarepro import api
    from swarepro.report.fill import fill_document, fill_report

    with progress_on_stderr() as progress:
        found = api.probe_fill(spec, options=run_options, progress=progress)
    emit(
        as_json=as_json,
        document=lambda: fill_document(found),
        report=lambda: fill_report(found),
    )
    return ExitCode.NOTHING_FOUND if found.verdict == "INDEPENDENT" else ExitCode.FINDING
