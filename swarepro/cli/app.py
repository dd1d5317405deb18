"""The program: its commands, its global options, and the one place where it exits."""

import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from swarepro import __version__
from swarepro.cli import (
    calibrate,
    capture_hf,
    cases,
    conclude,
    determinism,
    diagnose,
    diff_boundaries,
    doctor,
    explain,
    faults,
    fill_probe,
    foreign,
    inspect_bundle,
    intervene,
    ownership,
    points,
    replay,
    run,
    synth,
)
from swarepro.cli.failure import Failure, describe, fail, traceback_of
from swarepro.cli.help import add_command
from swarepro.cli.output import write
from swarepro.errors import ExitCode

# The base of Typer's usage errors. Typer brings its own copy of Click or uses the package; both
# have BadParameter below it.
_PARSE_ERROR: type[Exception] = next(
    base
    for base in reversed(typer.BadParameter.__mro__)
    if issubclass(base, Exception) and hasattr(base, "format_message")
)


_TYPER_INTERRUPTED = 130


@dataclass(slots=True, kw_only=True)
class Settings:
    """What the global options say, and what holds before they are parsed."""

    as_json: bool
    traceback: bool = False


class Program(TyperGroup):
    """The command group that turns every way to end into an exit code."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> NoReturn:
        """Run a command line and exit: its own code, or that of what went wrong."""
        argv = list(sys.argv[1:] if args is None else args)
        settings = Settings(as_json="--json" in argv)
        extra.update(prog_name="swarepro", standalone_mode=False, obj=settings)
        try:
            code = super().main(argv, **extra)
        except _PARSE_ERROR as error:
            code = fail(_parse_failure(error), as_json=settings.as_json)
        except typer.Abort:
            code = fail(describe(KeyboardInterrupt()), as_json=settings.as_json)
        except SystemExit:  # Typer's answer to a reader of --help that has gone (`| head`)
            code = ExitCode.NOTHING_FOUND
        except (Exception, KeyboardInterrupt) as error:  # --help and --version end here
            code = fail(describe(error), as_json=settings.as_json)
        if code == _TYPER_INTERRUPTED:
            code = fail(describe(KeyboardInterrupt()), as_json=settings.as_json)
        sys.exit(int(code or ExitCode.NOTHING_FOUND))

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command; every exception but Typer's own ends here."""
        try:
            return super().invoke(ctx)
        except (_PARSE_ERROR, typer.Exit, typer.Abort):
            raise
        except (Exception, KeyboardInterrupt) as error:
            if ctx.obj.traceback:
                traceback_of(error)
            return fail(describe(error), as_json=ctx.obj.as_json)


def _parse_failure(error: Exception) -> Failure:
    """Return the message of a Typer usage error, with the help of its command as the hint."""
    message = str(getattr(error, "format_message", error.__str__)()).replace("Value error, ", "")
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "swarepro"
    return Failure(
        kind="UsageError",
        message=message,
        hint=f"`{path} --help` lists what it takes",
        code=ExitCode.CANNOT_JUDGE,
    )


app = typer.Typer(
    cls=Program,
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 nothing found, 1 a finding, 2 could not judge, 70 an internal error.",
)


def _version(wanted: bool) -> None:
    if wanted:
        write(f"swarepro {__version__}\n")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def program(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", metavar="", callback=_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", metavar="", help="Show the traceback of any error.")
    ] = False,
) -> ExitCode | None:
    """Reproduce, locate and prove failures of hybrid sliding-window KV caches.

    Run a case into a bundle, repeat it to see what varies, diff two bundles to see where they part.
    """
    context.obj.traceback = traceback
    if context.invoked_subcommand is None:
        write(context.get_help() + "\n")
        return ExitCode.CANNOT_JUDGE
    return None


add_command(app, "run", run.run)
add_command(app, "capture-hf", capture_hf.capture_hf)
add_command(app, "determinism", determinism.determinism)
add_command(app, "ownership", ownership.ownership)
add_command(app, "fill-probe", fill_probe.fill_probe)
add_command(app, "replay", replay.replay)
add_command(app, "intervene", intervene.intervene)
add_command(app, "diagnose", diagnose.diagnose)
add_command(app, "conclude", conclude.conclude)
add_command(app, "diff-boundaries", diff_boundaries.diff_boundaries)
add_command(app, "calibrate", calibrate.calibrate)
add_command(app, "explain", explain.explain)
app.add_typer(cases.app, name="cases")
add_command(app, "points", points.points)
add_command(app, "faults", faults.faults)
add_command(app, "inspect", inspect_bundle.inspect)
add_command(app, "doctor", doctor.doctor)
add_command(app, "import", foreign.import_)
add_command(app, "export", foreign.export)
add_command(app, "synth", synth.synth)


def _stop(number: int, frame: object) -> NoReturn:
    """End like an interrupt, so that nothing is left half written."""
    raise KeyboardInterrupt


def main() -> None:
    """Entry point of the console script."""
    for name in ("SIGTERM", "SIGHUP"):  # a system without SIGHUP lacks the name
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _stop)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    app()
