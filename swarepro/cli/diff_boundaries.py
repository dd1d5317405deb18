"""`swarepro diff-boundaries`: where two runs part."""

from pathlib import Path
from typing import Annotated

import typer

from swarepro.cli import options as o
from swarepro.cli.output import emit
from swarepro.cli.progress import progress_on_stderr
from swarepro.errors import ExitCode, UsageError

_TOLERANCE = "Tolerance (none: bitwise)"
_FLOOR = "Noise floor (instead of a tolerance; rows are joined by position)"


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
            help="How boundaries are matched; by default step where one run begins as the other"
            " does, else position.",
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
    floor: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Judge by a noise floor (`swarepro calibrate`): WRONG, NOISE or TIE.",
            rich_help_panel=_FLOOR,
        ),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(
            metavar="F",
            help="How far beyond the floor is still noise, by default 4.",
            rich_help_panel=_FLOOR,
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

    Exit code 0 identical, within tolerance, noise or a tie; 1 diverged or wrong; 2 nothing could be
    judged.
    """
    from swarepro import api
    from swarepro.report import diff_document, diff_report, make_tolerance

    if floor is not None:
        given: dict[str, object] = {"atol": atol, "rtol": rtol, "max-ulp": max_ulp, "align": align}
        given["verify"] = verify or None
        return _assess(baseline, target, floor, margin, given, as_json=as_json)
    if margin is not None:
        raise UsageError("--margin is of a floor", hint="give the floor, too: --floor FILE")
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


def _assess(
    baseline: Path,
    target: Path,
    floor: Path,
    margin: float | None,
    given: dict[str, object],
    *,
    as_json: bool,
) -> ExitCode:
    from swarepro import api
    from swarepro.report.assessment import assessment_document, assessment_report

    told = [f"--{name}" for name, value in given.items() if value is not None]
    if told:
        raise UsageError(
            f"{', '.join(told)} cannot be given with --floor: the floor says what is noise, rows"
            " are joined by position, and every tensor that is opened is checked",
            hint="leave it out, or leave out --floor",
        )
    found = api.assess_runs(baseline, target, floor=floor, margin=margin)
    emit(
        as_json=as_json,
        document=lambda: assessment_document(found),
        report=lambda: assessment_report(found),
    )
    return {
        "WRONG": ExitCode.FINDING,
        "INCOMPARABLE": ExitCode.CANNOT_JUDGE,
    }.get(found.verdict, ExitCode.NOTHING_FOUND)
