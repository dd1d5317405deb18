"""`swarepro doctor`: what this machine offers."""

from swarepro.cli import options as o
from swarepro.cli.output import emit
from swarepro.errors import ExitCode
from swarepro.report.model import Grid, Report, Tone
from swarepro.report.words import literal


def doctor(as_json: o.AsJson = False) -> ExitCode:
    """Say which versions, device and routes are used here, and why.

    It describes and does not judge: the exit code is 0 whatever is missing.
    """
    from swarepro import api

    lines = api.doctor()
    missing = sum(not line.ok for line in lines)
    emit(
        as_json=as_json,
        document=lambda: {
            "lines": [
                {"what": line.what, "found": line.found, "ok": line.ok, "why": line.why}
                for line in lines
            ]
        },
        report=lambda: Report(
            headline=(
                "Everything that swarepro can use is here."
                if not missing
                else f"{missing} of {len(lines)} things that swarepro can use are not here."
            ),
            tone=Tone.PLAIN if missing else Tone.GOOD,
            grids=(
                Grid(
                    title="",
                    columns=("what", "found", "", "why"),
                    rows=tuple(
                        (
                            literal(line.what),
                            literal(line.found),
                            "ok" if line.ok else "no",
                            literal(line.why),
                        )
                        for line in lines
                    ),
                ),
            ),
        ),
    )
    return ExitCode.NOTHING_FOUND
