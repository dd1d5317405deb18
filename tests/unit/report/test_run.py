from pathlib import Path

from swarepro.bundle.schema import OwnerRange, SpanEntry, StepEntry
from swarepro.report.model import Tone
from swarepro.report.run import inspect_report, ownership_grids, run_report, steps_grid
from tests.unit.report.made import VIOLATION, manifest, ownership, record


def test_a_clean_run() -> None:
    report = run_report(manifest(), bundle=Path("runs/r1"), size_bytes=2 * 1024**2)
    assert report.headline == (
        "Ran anchor-a: 2 steps on 1 stage, 2 points captured, 2.0 MiB on disk."
        " Every stored position owns an SWA slot of its own."
    )
    assert report.tone is Tone.GOOD
    assert report.grids[0].rows == (("0", "prefill", "0-63", "64"), ("1", "decode", "64", "1"))
    assert report.grids[1].rows == (("0", "0-11", "128", "61", "67", "67", "0-66 -> 1-67", "0"),)
    assert report.lines == (
        "Model synthetic:gemma4-tiny (12 layers, bf16) on cpu, route eager, schedule program,"
        " no fault; capture op, store tensor.",
        "Tokens: 227, 3.",
    )
    assert report.commands == ("bundle: runs/r1",)


def test_a_violation_comes_first() -> None:
    bad = manifest(ownership=(ownership(VIOLATION, owned=False),), faults=("skip",))
    report = run_report(bad, bundle=Path("r"), size_bytes=1)
    assert report.headline.startswith("The ownership report has 1 violation. Ran anchor-a")
    assert report.tone is Tone.BAD
    assert report.grids[1].rows[0][6] == "no position owns a slot"
    assert report.grids[2].rows == (
        ("0", "0", "sentinel-store", "0-63", "0", "positions 0 to 63 stored to SWA slot 0 [/x]"),
    )
    assert "faults skip" in report.lines[0]


def test_no_sliding_layers() -> None:
    report = run_report(manifest(ownership=()), bundle=Path("r"), size_bytes=1)
    assert "No stage has sliding layers" in report.headline
    assert len(report.grids) == 1


def test_shared_slots_are_said_once() -> None:
    from msgspec.structs import replace

    shared = replace(ownership(), owners=(OwnerRange(session=0, start=0, slots=(0,) * 67),))
    (grid,) = ownership_grids(manifest(ownership=(shared,)))
    assert grid.rows[0][6] == "0-66 -> 0 for all"


def test_several_sessions_show_their_resets() -> None:
    step = StepEntry(
        index=2, phase="prefill", spans=(SpanEntry(session=1, start=0, end=5),), reset=True
    )
    two = manifest(prompts=((1,), (2,)), tokens=((3,), (4,)), steps=(step,))
    assert steps_grid(two).rows == (("2", "prefill", "1", "before it", "0-4", "5"),)
    lines = run_report(two, bundle=Path("r"), size_bytes=1).lines
    assert lines[1:] == ("Tokens of session 0: 3.", "Tokens of session 1: 4.")


def test_inspect_counts_what_is_there() -> None:
    records = [record(0), record(1, file=None, name="logits", point="logits")]
    report = inspect_report(manifest(), records, bundle=Path("r"), verified=1)
    assert report.headline == (
        "r1: 2 records, 1 tensor stored, 1 of them verified; 2.0 KiB in 1 file; schema version 1."
    )
    assert report.grids[0].rows[0] == ("0", "prefill", "0-63", "64", "2")
    assert report.grids[2].rows == (
        ("L{layer}_o_proj", "value", "1", "1"),
        ("logits", "value", "1", "0"),
    )
    unverified = inspect_report(manifest(), records, bundle=Path("r"), verified=0)
    assert "1 tensor stored, not verified" in unverified.headline


def test_inspect_of_a_bad_run_is_marked() -> None:
    bad = manifest(ownership=(ownership(VIOLATION),))
    assert inspect_report(bad, [], bundle=Path("r"), verified=0).tone is Tone.BAD


def test_a_text_prompt_is_answered_in_text() -> None:
    report = run_report(manifest(), bundle=Path("b"), size_bytes=1, texts=("a [/x]\nb", None))
    assert [line for line in report.lines if line.startswith("Text")] == ["Text: a [/x]\\nb"]
    plain = run_report(manifest(), bundle=Path("b"), size_bytes=1)
    assert not any(line.startswith("Text") for line in plain.lines)
