"""`swarepro faults`: the defects that can be injected."""

from swarepro.cli import options as o
from swarepro.cli.output import emit
from swarepro.errors import ExitCode
from swarepro.report.model import Grid, Report, Tone
from swarepro.report.words import count, literal


def faults(as_json: o.AsJson = False) -> ExitCode:
    """List the defects that --fault injects, each a wrapper of one part of the runtime."""
    from swarepro import api

    found = api.fault_summaries()
    emit(
        as_json=as_json,
        document=lambda: {
            "faults": [
                {
                    "name": fault.name,
                    "mechanism": fault.mechanism,
                    "part": fault.part,
                    "effect": str(fault.effect),
                    "summary": fault.summary,
                }
                for fault in found
            ]
        },
        report=lambda: Report(
            headline=f"{count(len(found), 'fault')}.",
            tone=Tone.PLAIN,
            grids=(
                Grid(
                    title="",
                    columns=("fault", "", "part", "effect", "summary"),
                    rows=tuple(
                        (
                            literal(fault.name),
                            literal(fault.mechanism),
                            literal(fault.part),
                            literal(fault.effect),
                            literal(fault.summary),
                        )
                        for fault in found
                    ),
                ),
            ),
        ),
    )
    return ExitCode.NOTHING_FOUND
