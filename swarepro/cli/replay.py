"""`swarepro replay`: one step again and again, from exactly the same state."""

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


@with_case("schedule", "store", "max_bundle_bytes", "recv", unless="from_state")
def replay(
    spec: "CaseSpec | None",
    run_options: "RunOptions",
    *,
    step: Annotated[
        int | None, typer.Option("--step", "-k", min=0, metavar="K", help="The step to replay.")
    ] = None,
    trials: Annotated[
        int, typer.Option("--trials", "-n", min=2, metavar="N", help="How often.")
    ] = 6,
    save: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Save the frozen state as a new folder.")
    ] = None,
    from_state: Annotated[
        Path | None,
        typer.Option("--from", metavar="DIR", help="Replay from a saved state; it knows the case."),
    ] = None,
    as_json: o.AsJson = False,
) -> ExitCode:
    """Replay one step of a case from one frozen state and say what varies.

    The steps before it run once; their state is frozen, and restored before every trial, which is
    proved by digests. Exit code 1 when anything varies, 2 when what comes before varies by itself.
    A saved state is replayed by any process, on any route or device (--route, --device).
    """
    from swarepro import api
    from swarepro.report.replay import replay_document, replay_report

    with progress_on_stderr() as progress:
        if from_state is not None:
            if step is not None or save is not None:
                raise UsageError(
                    "--step and --save cannot be given with --from: the saved state knows its step",
                    hint="leave them out",
                )
            result = api.replay_saved(
                from_state, trials=trials, options=run_options, progress=progress
            )
        elif step is None or spec is None:
            raise UsageError("--step K is missing", hint="name the step, or a saved state (--from)")
        else:
            result = api.replay_case(
                spec, step=step, trials=trials, options=run_options, save=save, progress=progress
            )
    outputs = [(x.step, x.session, x.name) for x in result.varying_outputs]
    shown: dict[str, Any] = {
        "case": result.case,
        "step": result.step,
        "schedules": result.schedules,
        "varying_outputs": outputs,
        "prefix_runs": result.prefix_runs,
        "saved": result.saved,
        "state": result.state,
        "changed": result.changed,
        "rows_restored": result.rows_restored,
        "ownership": result.ownership,
    }
    found = result.determinism
    emit(
        as_json=as_json,
        document=lambda: replay_document(found, **shown),
        report=lambda: replay_report(found, **shown),
    )
    if outputs:
        return ExitCode.CANNOT_JUDGE
    return ExitCode.FINDING if found.verdict == "NONDETERMINISTIC" else ExitCode.NOTHING_FOUND
