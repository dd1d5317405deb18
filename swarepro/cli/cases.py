"""`swarepro cases`: list, show and judge the shipped cases."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swarepro.cli import options as o
from swarepro.cli.help import add_command
from swarepro.cli.output import emit, emit_json, write
from swarepro.cli.progress import progress_on_stderr
from swarepro.cli.target import writing
from swarepro.errors import ExitCode, SwareproError, UsageError
from swarepro.report.detection import Row, detection_grid, detection_page
from swarepro.report.model import Grid, Report, Tone
from swarepro.report.words import MISSING, count, literal

if TYPE_CHECKING:
    from swarepro.api import Progress
    from swarepro.case import CaseSpec, SessionSpec

app = typer.Typer(help="List, show and judge the shipped cases.")


@app.callback(invoke_without_command=True)
def cases(context: typer.Context) -> ExitCode | None:
    """List, show and judge the shipped cases."""
    return list_cases() if context.invoked_subcommand is None else None


def list_cases(as_json: o.AsJson = False) -> ExitCode:
    """List the shipped cases."""
    from swarepro import api

    shipped = [(api.find_case(name), path) for name, path in api.shipped_cases().items()]

    def document() -> dict[str, Any]:
        return {
            "cases": [
                {
                    "name": case.name,
                    "summary": case.summary,
                    "model": case.model,
                    "fault": case.fault,
                    "repeats": case.repeats,
                    "path": str(path),
                }
                for case, path in shipped
            ]
        }

    emit(as_json=as_json, document=document, report=lambda: _list_report([c for c, _ in shipped]))
    return ExitCode.NOTHING_FOUND


def show(
    name: Annotated[str, typer.Argument(metavar="CASE", help="A shipped case or a TOML file.")],
    as_json: o.AsJson = False,
) -> ExitCode:
    """Print a case: its TOML file as it is, ready to be changed and run."""
    import msgspec

    from swarepro import api

    case = api.find_case(name)
    if as_json:
        emit_json(msgspec.to_builtins(case))
    else:
        path = api.shipped_cases().get(name, Path(name))
        write(path.read_text(encoding="utf-8"))
    return ExitCode.NOTHING_FOUND


def run(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="CASE", help="Cases to judge.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", metavar="", help="All shipped cases.")] = False,
    markdown: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the table here too, as docs/detection.md, if all is well."
        ),
    ] = None,
    as_json: o.AsJson = False,
) -> ExitCode:
    """Run both arms of each case and judge it by its own expectations.

    Exit code 0 when every case finds what it should and nothing else, 1 when one does not, 2 when
    one cannot be judged.
    """
    from swarepro import api

    if every == bool(names):
        raise UsageError(
            "name the cases to run, or give --all" if not every else "--all excludes case names",
            hint="`swarepro cases` lists them",
        )
    chosen = list(api.shipped_cases()) if every else list(names or ())
    if not chosen:
        raise UsageError(
            "there is no shipped case to run", hint="name a TOML file: swarepro cases run FILE"
        )
    specs = [api.find_case(name) for name in chosen]
    with writing(markdown, option="--markdown") as page:
        with progress_on_stderr() as progress:
            judged = [_judge(spec, progress) for spec in specs]
        if all(row["ok"] for row in judged):
            page.write(detection_page([api.detection_row(spec) for spec in specs]))
    emit(
        as_json=as_json,
        document=lambda: {"ok": all(row["ok"] for row in judged), "cases": judged},
        report=lambda: _judged_report(judged, [api.detection_row(spec) for spec in specs]),
    )
    if any(row["error"] for row in judged):
        return ExitCode.CANNOT_JUDGE
    return ExitCode.NOTHING_FOUND if all(row["ok"] for row in judged) else ExitCode.FINDING


def _judge(case: "CaseSpec", progress: "Progress") -> dict[str, Any]:
    """Judge one case; one that cannot be judged does not keep the others from it."""
    from swarepro import api

    row: dict[str, Any] = {"name": case.name, "ok": False, "error": None, "checks": []}
    try:
        result = api.judge_case(case, progress=progress)
    except SwareproError as error:
        return {**row, "error": {"kind": type(error).__name__, "message": error.message}}
    checks = [
        {
            "arm": check.arm,
            "what": check.what,
            "wanted": check.wanted,
            "found": check.found,
            "ok": check.ok,
        }
        for check in result.checks
    ]
    return {**row, "ok": result.ok, "checks": checks}


def _judged_report(judged: list[dict[str, Any]], rows: Sequence[Row]) -> Report:
    """One table of what each detector says; below it what was not as stated, check by check."""
    good = sum(row["ok"] for row in judged)
    headline = f"{good} of {count(len(judged), 'case')} found what they should."
    if len(judged) == 1:
        headline = (
            "The case found what it should." if good else "The case did not find what it should."
        )
    return Report(
        headline=headline,
        tone=Tone.GOOD if good == len(judged) else Tone.BAD,
        grids=(
            detection_grid(rows, [row["ok"] for row in judged]),
            *(_judged_grid(row) for row in judged if not row["ok"] or len(judged) == 1),
        ),
    )


def _judged_grid(row: dict[str, Any]) -> Grid:
    state = "ok" if row["ok"] else "FAILED"
    if row["error"]:
        state = f"could not be judged: {row['error']['message']}"
    elif not row["checks"]:
        state = "FAILED: it states no expectation"
    return Grid(
        title=literal(f"{row['name']}: {state}"),
        columns=("arm", "what", "wanted", "found", ""),
        rows=tuple(
            (
                literal(check["arm"]),
                literal(check["what"]),
                literal(check["wanted"]),
                literal(check["found"]),
                "ok" if check["ok"] else "WRONG",
            )
            for check in row["checks"]
        ),
    )


def _list_report(shipped: "list[CaseSpec]") -> Report:
    rows = tuple(
        (
            literal(case.name),
            _sessions(case),
            literal(case.summary or MISSING)
            + (f"\nfault: {literal(case.fault)}" if case.fault else ""),
        )
        for case in shipped
    )
    return Report(
        headline=f"{count(len(shipped), 'shipped case')}.",
        tone=Tone.PLAIN,
        grids=(Grid(title="", columns=("case", "prompt rows", "summary"), rows=rows),),
        commands=("swarepro run CASE", "swarepro cases show CASE", "swarepro faults"),
    )


def _sessions(case: "CaseSpec") -> str:
    """Return e.g. ``"67 = 64 + 3, decode 2"`` by session; with a script ``"scripted: 40, 30"``."""
    if case.script:
        return "scripted: " + ", ".join(_rows(session) for session in case.sessions)
    return "\n".join(_session(session) for session in case.sessions)


def _rows(session: "SessionSpec") -> str:
    prompt = session.prompt
    return "text" if prompt.text is not None else str(prompt.random or len(prompt.tokens or ()))


def _session(session: "SessionSpec") -> str:
    from swarepro.case import DEFAULT_CHUNK

    rows = _rows(session)
    if session.chunks is None:
        rows += f" in {session.chunk or DEFAULT_CHUNK}s"
    elif len(session.chunks) > 1:
        rows += f" = {' + '.join(map(str, session.chunks))}"
    return rows + (f", decode {session.decode}" if session.decode else "")


add_command(app, "list", list_cases)
add_command(app, "show", show)
add_command(app, "run", run)
