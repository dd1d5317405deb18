"""`swarepro cases`: list, show and judge the shipped cases."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from swarepro.cli import options as o
from swarepro.cli.help import add_command
from swarepro.cli.output import emit, emit_json, write
from swarepro.cli.progress import progress_on_stderr
from swarepro.errors import ExitCode, SwareproError, UsageError
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
    from pathlib import Path

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
        raise UsageError("there is no shipped case to run")
    specs = [api.find_case(name) for name in chosen]
    with progress_on_stderr() as progress:
        judged = [_judge(spec, progress) for spec in specs]
    emit(
        as_json=as_json,
        document=lambda: {"ok": all(row["ok"] for row in judged), "cases": judged},
        report=lambda: _judged_report(judged),
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


def _judged_report(judged: list[dict[str, Any]]) -> Report:
    good = sum(row["ok"] for row in judged)
    return Report(
        headline=f"{good} of {count(len(judged), 'case')} found what they should.",
        tone=Tone.GOOD if good == len(judged) else Tone.BAD,
        grids=tuple(_judged_grid(row) for row in judged),
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
            "\n".join(_session(session) for session in case.sessions),
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


def _session(session: "SessionSpec") -> str:
    """Return e.g. ``"67 = 64 + 3, decode 2"``."""
    prompt = session.prompt
    rows = "text" if prompt.text is not None else str(prompt.random or len(prompt.tokens or ()))
    if session.chunks is None:
        rows += f" in {session.chunk}s"
    elif len(session.chunks) > 1:
        rows += f" = {' + '.join(map(str, session.chunks))}"
    return rows + (f", decode {session.decode}" if session.decode else "")


add_command(app, "list", list_cases)
add_command(app, "show", show)
add_command(app, "run", run)
