"""`swarepro intervene`: change one variable, against an unchanged control, from the same state."""

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


@with_case("schedule", "capture", "store", "points", "max_bundle_bytes", "recv")
def intervene(
    spec: "CaseSpec",
    run_options: "RunOptions",
    *,
    factor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="What to change; repeatable, by default each factor. graft:POINT=BUNDLE puts"
            " another run's boundary in.",
        ),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(
            "--step", "-k", min=0, metavar="K", help="The step to judge, by default the last chunk."
        ),
    ] = None,
    trials: Annotated[
        int, typer.Option("--trials", "-n", min=2, metavar="N", help="Of each arm.")
    ] = 6,
    as_json: o.AsJson = False,
) -> ExitCode:
    """Change one variable at a time and say which changes make a step's values stop varying.

    Control and treatment alternate (C T T C ...), each trial from restored state. Exit code 1 when
    the control varies or a treatment changes something, 2 when no factor could be judged or the
    outputs of the steps before vary.
    """
    from swarepro import api
    from swarepro.report.intervene import intervene_document, intervene_report, is_finding

    with progress_on_stderr() as progress:
        result = api.intervene_case(
            spec,
            factors=tuple(factor or ()),
            step=step,
            trials=trials,
            options=run_options,
            progress=progress,
        )
    factors = result.factors
    varying = [(x.step, x.session, x.name) for x in result.varying_outputs]
    emit(
        as_json=as_json,
        document=lambda: intervene_document(
            factors,
            case=result.case,
            step=result.step,
            trials=result.trials,
            orders=[
                [{"order": x.order, "arm": x.arm, "schedule": x.schedule} for x in each.trials]
                for each in factors
            ],
            varying_outputs=varying,
        ),
        report=lambda: intervene_report(
            factors,
            case=result.case,
            step=result.step,
            trials=result.trials,
            order="C T T C",
            varying_outputs=varying,
        ),
    )
    if all(each.control is None for each in factors):
        return ExitCode.CANNOT_JUDGE
    return ExitCode.FINDING if is_finding(factors) else ExitCode.NOTHING_FOUND
