"""What becomes of an exception: a line on stderr, in JSON mode a document, and an exit code."""

import contextlib
import sys
from dataclasses import dataclass

from swarepro.cli.output import complain, emit_json
from swarepro.errors import ExitCode, SwareproError
from swarepro.report.words import literal

REPORT_HINT = (
    "this is a defect of swarepro, not a finding about your run;"
    " `swarepro --traceback COMMAND ...` shows where it happened, please report it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A command that could not answer.

    Attributes:
        kind: class of the exception.
        message: what went wrong.
        hint: what to do about it, or None.
        code: of the process.
    """

    kind: str
    message: str
    hint: str | None
    code: ExitCode


def describe(error: BaseException) -> Failure:
    """Return what to tell about ``error``; everything unforeseen is an internal error."""
    kind, code, hint = type(error).__name__, ExitCode.CANNOT_JUDGE, None
    if isinstance(error, SwareproError):
        return Failure(kind=kind, message=error.message, hint=error.hint, code=error.exit_code)
    if isinstance(error, KeyboardInterrupt):
        return Failure(kind=kind, message="interrupted; nothing was kept", hint=None, code=code)
    if _is_out_of_memory(error):
        message = f"out of memory: {_first_line(error)}".rstrip(": ")
        hint = "use a shorter prompt, fewer layers, a smaller capacity or --store digest"
        return Failure(kind=kind, message=message, hint=hint, code=code)
    if isinstance(error, OSError):
        return Failure(kind=kind, message=_os_message(error), hint=None, code=code)
    return Failure(
        kind=kind,
        message=f"internal error: {kind}: {_first_line(error)}".rstrip(": "),
        hint=REPORT_HINT,
        code=ExitCode.INTERNAL,
    )


def fail(failure: Failure, *, as_json: bool) -> ExitCode:
    """Tell about ``failure`` on stderr, and as a document on stdout in JSON mode."""
    lines = [f"error: {_printable(failure.message)}"]
    if failure.hint:
        lines.append(f"hint: {_printable(failure.hint)}")
    complain("\n".join(lines) + "\n")
    if as_json:
        document = {
            "kind": failure.kind,
            "message": failure.message,
            "hint": failure.hint,
            "exit_code": int(failure.code),
        }
        with contextlib.suppress(OSError):  # stdout may be what failed; stderr has said so
            emit_json({"error": document})
    return failure.code


def traceback_of(error: BaseException) -> None:
    """Print the traceback of ``error`` on stderr."""
    import traceback

    if sys.stderr is not None:
        complain("".join(traceback.format_exception(error)))


def _is_out_of_memory(error: BaseException) -> bool:
    """Recognise Python's own error and torch's, whose classes are not imported here."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))
    )


def _os_message(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    return reason if error.filename is None else f"{error.filename}: {reason}"


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def _printable(text: str) -> str:
    return "\n".join(literal(line) for line in text.split("\n"))
