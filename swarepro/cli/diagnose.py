"""`swarepro diagnose`: the whole ladder, one folder of evidence, one conclusion."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swarepro.cli import options as o
from swarepro.cli.output import emit
from swarepro.cli.progress import progress_on_stderr
from swarepro.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from swarepro.evidence.conclusions import Conclusions

_LADDER = "How much of it"
_CODES = {
    "NOT_REPRODUCED": ExitCode.NOTHING_FOUND,
    "BLOCKED": ExitCode.CANNOT_JUDGE,
    "INSUFFICIENT_EVIDENCE": ExitCode.CANNOT_JUDGE,
}


def diagnose(
    case: Annotated[
        list[str] | None,
        typer.Argument(metavar="CASE...", help="Cases that are suspected to vary, of one cause."),
    ] = None,
    control: Annotated[
        str | None, typer.Option(metavar="CASE", help="A case that is expected to be stable.")
    ] = None,
    fault: o.FaultNames = None,
    unpatched: o.Unpatched = False,
    device: o.Device = None,
    route: o.Route = None,
    ownership: o.Ownership = None,
    factor: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="What to change; repeatable, by default each factor."),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(metavar="BUNDLE", help="A right run, to judge a stable case against."),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="R", help="Fresh processes of the baseline [2].", rich_help_panel=_LADDER
        ),
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(
            "--repeats", "-n", min=1, metavar="N", help="In each process [3].",
            rich_help_panel=_LADDER,
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            min=2, metavar="N", help="Of the replay and of each arm [6].", rich_help_panel=_LADDER
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="New folder of the evidence, by default below runs/."),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Go on with a diagnosis that was cut off."),
    ] = None,
    as_json: o.AsJson = False,
) -> ExitCode:  # fmt: skip
    """Prove why a case varies: baseline, replay, one variable at a time, and a conclusion.

    The baseline runs in fresh processes, and again with nothing and with everything captured. Every
    trial is a file; `swarepro conclude DIR` derives the answer from them again. Exit code 1 when a
    cause is localised, in part too, or a stable case is wrong; 2 when it cannot be said.
    """
    from swarepro import api
    from swarepro.cli.assemble import RunFlags, build_options

    ladder = {"processes": processes, "repeats": repeats, "trials": trials}
    given = {name: value for name, value in ladder.items() if value is not None}
    with progress_on_stderr() as progress:
        if resume is not None:
            _refuse(
                {"CASE": case, "--control": control, "--fault": fault, "--unpatched": unpatched}
                | {"--device": device, "--route": route, "--ownership": ownership}
                | {"--factor": factor, "--reference": reference, "--out": out}
                | {f"--{name}": value for name, value in given.items()}
            )
            folder = resume
            found = api.resume_diagnosis(resume, progress=progress)
        elif not case:
            raise UsageError("no case is named", hint="swarepro diagnose CASE [--control CASE]")
        else:
            folder = out or Path("runs") / _default_name(case[0])
            flags = RunFlags(
                faults=tuple(fault or ()),
                unpatched=unpatched,
                device=device,
                route=route,
                ownership=ownership,
            )
            found = api.diagnose_cases(
                [api.find_case(name) for name in case],
                control=None if control is None else api.find_case(control),
                folder=folder,
                factors=tuple(factor or ()),
                reference=reference,
                options=build_options(flags),
                progress=progress,
                **given,
            )
    return show(found, folder, as_json=as_json)


def show(found: "Conclusions", folder: Path, *, as_json: bool) -> ExitCode:
    """Print conclusions and return their exit code."""
    from swarepro.report.diagnose import diagnose_document, diagnose_report

    emit(
        as_json=as_json,
        document=lambda: diagnose_document(found, folder=str(folder)),
        report=lambda: diagnose_report(found, folder=str(folder)),
    )
    return _CODES.get(found.answer, ExitCode.FINDING)


def _default_name(case: str) -> str:
    when = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return f"diagnose-{Path(case).stem}-{when}"


def _refuse(given: dict[str, object]) -> None:
    told = [name for name, value in given.items() if value]
    if told:
        raise UsageError(
            f"{', '.join(told)} cannot be given with --resume: the plan says what is run",
            hint="leave it out",
        )
