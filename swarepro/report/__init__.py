"""Results in words, in tables and as JSON data. Nothing here opens a tensor."""

from swarepro.report.against import against_document, against_report
from swarepro.report.diff import diff_report
from swarepro.report.jsonout import (
    determinism_document,
    diff_document,
    finite,
    inspect_document,
    run_document,
)
from swarepro.report.model import Grid, Report, Tone
from swarepro.report.repeats import determinism_report
from swarepro.report.run import inspect_report, run_report
from swarepro.report.tolerance import make_tolerance

__all__ = [
    "Grid",
    "Report",
    "Tone",
    "against_document",
    "against_report",
    "determinism_document",
    "determinism_report",
    "diff_document",
    "diff_report",
    "finite",
    "inspect_document",
    "inspect_report",
    "make_tolerance",
    "run_document",
    "run_report",
]
