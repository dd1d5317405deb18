"""`swarepro determinism`: repeat a case and say what varies."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swarepro.cli import options as o
from swarepro.cli.output import emit
from swarepro.cli.progress import progress_on_stderr
from swarepro.cli.with_case import with_case
from swarepro.errors import ExitCode, IncomparableError, UsageError
from swarepro.report.words import listed, literal

if TYPE_CHECKING:
    from swarepro.api import RunOptions
    from swarepro.case import CaseSpec

KEEP_HINT = (
    "`--keep DIR` keeps a modal and a deviating repeat, ready for `swarepro diff-boundaries`."
)


@with_case("schedule")
def determinism(
    spec: "CaseSpec",
    run_options: "RunOptions",
    *,
    repeats: Annotated[
        int | None,
        typer.Option(
            "--repeats",
            "-n",
            min=2,
            metavar="N",
            help="Runs of the same case; by default as many as the case says.",
        ),
    ] = None,
    fresh_process: Annotated[
        bool,
        typer.Option("--fresh-process", metavar="", help="A process of its own for each repeat."),
    ] = False,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Keep the bundles of the modal and of one deviating repeat here."
        ),
    ] = None,
    as_json: o.AsJson = False,
) -> ExitCode:
    """Repeat a case and say which boundary varies first, and which value it harms first.

    Each repeat takes another legal order of the stores' concurrent programs. Exit code 1 when
    anything varies.
    """
    from swarepro import api
    from swarepro.report import determinism_document, determinism_report

    wanted = spec.repeats if repeats is None else repeats
    if wanted < 2:
        raise UsageError(
            f"the case {spec.name!r} asks for {wanted} repeat; nothing can vary in fewer than 2",
            hint="give --repeats N",
        )
    with progress_on_stderr() as progress:
        result = api.repeat_case(
            spec,
            repeats=wanted,
            options=run_options,
            fresh_process=fresh_process,
            keep=keep,
            progress=progress,
        )
    found, kept = result.determinism, result.kept
    if found.only_some:
        point = found.only_some[0]
        raise IncomparableError(
            f"{len(found.only_some)} boundaries are missing in some repeats,"
            f" the first is step {point.step}, {point.name}",
            hint="repeats of one case compute the same boundaries: please report this defect",
        )
    varies = found.verdict == "NONDETERMINISTIC"
    emit(
        as_json=as_json,
        document=lambda: determinism_document(found, ownership=result.ownership, kept=kept),
        report=lambda: determinism_report(
            found,
            setting=_setting(spec, run_options),
            ownership=result.ownership,
            commands=_next(varies, kept),
        ),
    )
    return ExitCode.FINDING if varies else ExitCode.NOTHING_FOUND


def _setting(case: "CaseSpec", run_options: "RunOptions") -> str:
    """Return what ran, in one sentence."""
    faults = listed(run_options.faults, most=8) if run_options.faults else "none"
    stages = f"layers {case.layers}" if case.layers else f"stages {case.stages or 'one'}"
    capture = run_options.capture
    ran = literal(
        f"Case {case.name}: model {case.model}, {case.dtype}, {stages}, faults: {faults};"
        f" capture {capture.level}."
    )
    if capture.level == "op" and capture.points == ("*",):
        return ran
    return f"{ran} Only some boundaries were captured: what varies before them is not seen."


def _next(varies: bool, kept: Sequence[Path]) -> tuple[str, ...]:
    """Return the exact command that compares what was kept, or how to keep it."""
    if len(kept) == 2:
        return (shlex.join(["swarepro", "diff-boundaries", *map(str, kept)]),)
    if kept:
        return tuple(f"kept: {path}" for path in kept)
    return (KEEP_HINT,) if varies else ()
