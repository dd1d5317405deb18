"""`swarepro ownership`: who owns and who uses which KV slot, in one run."""

from typing import TYPE_CHECKING

from swarepro.cli import options as o
from swarepro.cli.output import emit
from swarepro.cli.progress import progress_on_stderr
from swarepro.cli.with_case import with_case
from swarepro.errors import ExitCode

if TYPE_CHECKING:
    from swarepro.api import RunOptions
    from swarepro.case import CaseSpec


@with_case("ownership", "capture", "store", "points", "max_bundle_bytes")
def ownership(
    spec: "CaseSpec", run_options: "RunOptions", *, as_json: o.AsJson = False
) -> ExitCode:
    """Run a case once and name the first broken rule of KV slot ownership; no bundle is written.

    One run finds the cause before any number differs. Exit code 1 when a rule is broken.
    """
    from swarepro import api
    from swarepro.errors import SessionError
    from swarepro.report.ownership import ownership_document, ownership_report

    with progress_on_stderr() as progress:
        found = api.watch_case(spec, options=run_options, progress=progress)
    if found.error is not None and not found.violations:
        raise SessionError(
            f"the run ended at step {found.steps_done} of {found.steps}: {found.error}",
            hint="; ".join(filter(None, (found.hint, "no ownership rule was broken until then"))),
        )
    emit(
        as_json=as_json,
        document=lambda: ownership_document(
            found.ownership,
            case=found.case,
            steps=found.steps,
            steps_done=found.steps_done,
            error=found.error,
        ),
        report=lambda: ownership_report(
            found.ownership,
            case=found.case,
            stages=found.stages,
            steps=found.steps,
            steps_done=found.steps_done,
            error=found.error,
        ),
    )
    return ExitCode.FINDING if found.violations else ExitCode.NOTHING_FOUND
