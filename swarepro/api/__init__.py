"""What the command line, the tests and other programs call.

Nothing here imports torch before it is needed: `swarepro --help` answers at once.
"""

from swarepro.api.causes import (
    conclude_evidence,
    diagnose_cases,
    intervene_case,
    replay_case,
    replay_saved,
    resume_diagnosis,
)
from swarepro.api.foreign import export_bundle, import_foreign
from swarepro.api.judging import assess_runs, calibrate_case, explain_runs
from swarepro.api.looking import (
    DoctorLine,
    FaultSummary,
    Inspection,
    doctor,
    fault_summaries,
    inspect_bundle,
    write_synthetic_model,
)
from swarepro.api.running import (
    capture_hf,
    detection_row,
    diff_runs,
    judge_case,
    probe_fill,
    repeat_case,
    run_against,
    run_case,
    watch_case,
)
from swarepro.options import CaptureOptions, Progress, RunOptions, no_progress
from swarepro.shipped import find_case, shipped_cases

__all__ = [
    "CaptureOptions",
    "DoctorLine",
    "FaultSummary",
    "Inspection",
    "Progress",
    "RunOptions",
    "assess_runs",
    "calibrate_case",
    "capture_hf",
    "conclude_evidence",
    "detection_row",
    "diagnose_cases",
    "diff_runs",
    "doctor",
    "explain_runs",
    "export_bundle",
    "fault_summaries",
    "find_case",
    "import_foreign",
    "inspect_bundle",
    "intervene_case",
    "judge_case",
    "no_progress",
    "probe_fill",
    "repeat_case",
    "replay_case",
    "replay_saved",
    "resume_diagnosis",
    "run_against",
    "run_case",
    "shipped_cases",
    "watch_case",
    "write_synthetic_model",
]
