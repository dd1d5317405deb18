from pathlib import Path
from typing import Any

from msgspec.structs import replace

from swarepro.compare.types import Against
from swarepro.points import PointKind
from swarepro.report.against import against_document, against_report
from swarepro.report.jsonout import diff_document, run_document
from swarepro.report.model import Report, Tone
from tests.unit.report import made

STORED = tuple(
    made.record(index, name=name, session=session, kind=kind)
    for index, (name, session, kind) in enumerate(
        (
            ("full_slots", 1, PointKind.METADATA),
            ("L0_kv_slice_post_write", 0, PointKind.STATE),
        )
    )
)


def against(**changes: Any) -> Against:
    values: dict[str, Any] = {
        "divergence": made.divergence(last_step=0),
        "steps_run": 1,
        "steps_planned": 5,
        "steps_baseline": 5,
        "stored": STORED,
        "in_baseline": False,
        "peak_bytes": 3 * 1024,
    }
    return Against(**(values | changes))


def report(found: Against, *violations: Any) -> Report:
    run = made.manifest(ownership=(made.ownership(*violations),)) if violations else made.manifest()
    return against_report(run, found, bundle=Path("runs/b"), size_bytes=2048)


def test_a_mismatch() -> None:
    said = report(against())
    assert said.headline.startswith("DIVERGED. A bad store: the runs part at step 0")
    assert said.tone is Tone.BAD
    assert said.grids[-1].title == "2 tensors stored: the first mismatch and its captured inputs"
    assert [row[1:4] for row in said.grids[-1].rows] == [
        ("full_slots", "metadata", "an input"),
        ("L0_kv_slice_post_write", "state", "the mismatch"),
    ]
    assert any(line.startswith("The baseline has no tensor there") for line in said.lines)
    assert (
        "Ran anchor-a: 1 step of 5, 2 points captured, 2.0 KiB on disk; at most 3.0 KiB of tensors"
        " held at a time." in said.lines
    )
    assert said.commands == (
        "bundle: runs/b",
        "compare: swarepro diff-boundaries runs/a runs/b",
    )


def test_sessions_are_named_where_there_are_several() -> None:
    said = report(against(divergence=made.divergence(several_sessions=True)))
    assert [row[:3] for row in said.grids[-1].rows] == [
        ("0", "1", "full_slots"),
        ("0", "0", "L0_kv_slice_post_write"),
    ]


def test_a_baseline_with_tensors_needs_no_second_run() -> None:
    said = report(against(in_baseline=True))
    assert not any("The baseline has no tensor" in line for line in said.lines)


def test_metadata_that_differs_first_may_be_left_out() -> None:
    said = report(against(divergence=made.divergence(first=made.SLOTS)))
    assert any("--points 'L*,after_layer_*,logits'" in line for line in said.lines)
    assert not any("--points" in line for line in report(against()).lines)


def test_an_equal_run() -> None:
    said = report(against(divergence=made.identical(), stored=(), steps_run=5, in_baseline=False))
    assert said.headline == "IDENTICAL: all 384 boundaries have the same bytes on both sides."
    assert said.tone is Tone.GOOD
    assert said.grids == ()
    assert said.commands == ("bundle: runs/b",)
    # Its digests were computed just now, and not read.
    assert not any("--verify" in line for line in said.lines)


def test_an_equal_run_that_ended_with_its_baseline_says_so() -> None:
    said = report(against(divergence=made.identical(), stored=(), steps_baseline=1))
    assert said.headline.endswith("The baseline ends with step 0: 4 steps of the plan did not run.")


def test_a_violation_of_an_equal_run_is_in_the_headline() -> None:
    said = report(against(divergence=made.identical(), stored=(), steps_run=5), made.VIOLATION)
    assert said.headline.startswith("IDENTICAL: ")
    assert "Ownership: sentinel-store at step 0" in said.headline
    assert said.tone is Tone.BAD
    assert not any(line.startswith("Ownership") for line in said.lines)


def test_a_violation_beside_a_mismatch_is_a_line() -> None:
    said = report(against(), made.VIOLATION)
    assert "Ownership" not in said.headline
    assert any(line.startswith("Ownership: sentinel-store") for line in said.lines)


def test_the_document_is_both_documents() -> None:
    found, run = against(), made.manifest()
    document = against_document(run, found, bundle=Path("runs/b"), size_bytes=2048)
    own = document.pop("against")
    assert document == run_document(run, bundle=Path("runs/b"), size_bytes=2048)
    diff = diff_document(found.divergence)
    assert {key: own.pop(key) for key in diff} == diff
    stored = own.pop("stored")
    assert own == {
        "steps_run": 1,
        "steps_planned": 5,
        "steps_baseline": 5,
        "in_baseline": False,
        "peak_bytes": 3072,
    }
    assert [(each["name"], each["session"], each["kind"]) for each in stored] == [
        ("full_slots", 1, "metadata"),
        ("L0_kv_slice_post_write", 0, "state"),
    ]


def test_on_a_device_it_says_that_it_waited() -> None:
    run = made.manifest()
    on_gpu = replace(run, backend=replace(run.backend, device="cuda"))
    said = against_report(on_gpu, against(), bundle=Path("runs/b"), size_bytes=1)
    assert any("that can hide a race" in line for line in said.lines)
    assert not any("hide a race" in line for line in report(against()).lines)
