from pathlib import Path

from msgspec.structs import replace

from swarepro.bundle.schema import ActionEntry, SpanEntry, StepEntry
from swarepro.report.jsonout import run_document
from swarepro.report.model import Tone
from swarepro.report.run import inspect_report, run_report, steps_grid
from tests.unit.report.made import VIOLATION, batches, manifest, ownership, record, two_groups


def test_a_clean_run() -> None:
    report = run_report(manifest(), bundle=Path("runs/r1"), size_bytes=2 * 1024**2)
    assert report.headline == (
        "Ran anchor-a: 2 steps on 1 stage, 2 points captured, 2.0 MiB on disk."
        " Every stored position owns an SWA slot of its own."
    )
    assert report.tone is Tone.GOOD
    assert report.grids[0].rows == (("0", "prefill", "0-63", "64"), ("1", "decode", "64", "1"))
    assert report.grids[1].rows == (
        ("0", "sliding", "0-11", "128", "61", "67", "0", "0", "67", "0"),
    )
    assert report.grids[2].rows == (("0", "sliding", "0", "0-66 -> 1-67"),)
    assert report.lines == (
        "Model synthetic:gemma4-tiny (12 layers, bf16) on cpu, route eager, schedule program,"
        " no fault; capture op, store tensor.",
        "Tokens: 227, 3.",
    )
    assert report.commands == ("bundle: runs/r1",)


def test_a_violation_comes_first() -> None:
    bad = manifest(ownership=(ownership(VIOLATION, owned=False),), faults=("skip",))
    report = run_report(bad, bundle=Path("r"), size_bytes=1)
    assert report.headline.startswith(
        "Ownership: sentinel-store at step 0, stage 0: positions 0 to 63 stored to SWA slot 0 [/x]."
        " 1 violation in all. Ran anchor-a"
    )
    assert report.tone is Tone.BAD
    assert report.grids[2].rows == (("0", "sliding", "-", "no position owns a slot"),)
    assert report.grids[3].rows == (
        ("0", "0", "sentinel-store", "0-63", "0", "positions 0 to 63 stored to SWA slot 0 [/x]"),
    )
    assert "faults skip" in report.lines[0]


def test_no_sliding_layers() -> None:
    report = run_report(manifest(ownership=()), bundle=Path("r"), size_bytes=1)
    assert "No stage has sliding layers" in report.headline
    assert len(report.grids) == 1


def test_several_sessions_show_their_resets() -> None:
    step = StepEntry(
        index=2, phase="prefill", spans=(SpanEntry(session=1, start=0, end=5),), reset=True
    )
    two = manifest(prompts=((1,), (2,)), tokens=((3,), (4,)), steps=(step,))
    assert steps_grid(two).columns[3] == "before it"
    assert steps_grid(two).rows == (("2", "prefill", "1", "reset", "0-4", "5"),)
    lines = run_report(two, bundle=Path("r"), size_bytes=1).lines
    assert lines[1:] == ("Tokens of session 0: 3.", "Tokens of session 1: 4.")


def test_every_span_and_action_has_a_line_with_its_session_and_its_phase() -> None:
    grid = steps_grid(batches())
    assert grid.columns == (">step", "phase", ">session", "before it", "positions", ">rows")
    assert grid.rows == (
        ("0", "prefill", "0", "-", "0-63", "64"),
        ("1", "prefill", "1", "-", "0-4", "5"),
        ("", "decode", "0", "", "64", "1"),
        ("2", "prefill", "2", "finish 1", "32-63", "32"),
        ("", "", "", "keep 0", "", ""),
        ("", "", "", "reuse 32 rows of 0 for 2", "", ""),
    )
    report = run_report(batches(), bundle=Path("r"), size_bytes=1)
    assert report.lines[0] == "After the last step: finish 2."
    assert report.headline.endswith("No ownership rule was broken.")


def test_a_reuse_is_said() -> None:
    first, second, third = batches().steps
    third = replace(third, reset=True, actions=third.actions[2:])
    rows = steps_grid(replace(batches(), steps=(first, second, third))).rows
    assert [row[3] for row in rows] == ["-", "-", "", "reset", "reuse 32 rows of 0 for 2"]


def test_actions_of_one_session_are_shown_too() -> None:
    step = replace(manifest().steps[0], actions=(ActionEntry(kind="finish", session=0),))
    assert steps_grid(manifest(steps=(step,))).rows == (
        ("0", "prefill", "0", "finish 0", "0-63", "64"),
    )


def test_records_are_counted_for_each_span() -> None:
    records = [record(0, session=0), *(record(i, step=1, session=1) for i in (1, 2))]
    grid = inspect_report(batches(), records, bundle=Path("r"), verified=0).grids[0]
    assert [row[-1] for row in grid.rows] == ["1", "2", "0", "0", "", ""]


def test_a_run_without_the_shadow_is_no_good_run() -> None:
    report = run_report(batches(), bundle=Path("r"), size_bytes=1)
    assert report.tone is Tone.GOOD
    unseen = replace(batches(), shadow=False)
    report = run_report(unseen, bundle=Path("r"), size_bytes=1)
    assert report.headline.endswith("Ownership was not checked: the ownership shadow was off.")
    assert report.tone is Tone.PLAIN


def test_the_first_violation_of_the_run_is_the_headline() -> None:
    bad = replace(batches(), ownership=two_groups(broken=True))
    start = (
        "Ownership: duplicate-slot-store at step 3, stage 0, layer 5, full group: position 7 stored"
        " to a slot of another session. 3 violations in all."
    )
    assert run_report(bad, bundle=Path("r"), size_bytes=1).headline.startswith(f"{start} Ran")
    assert start in inspect_report(bad, [], bundle=Path("r"), verified=0).lines


def test_what_unwritten_memory_held_is_said() -> None:
    backend = replace(manifest().backend, fill="nan")
    lines = run_report(manifest(backend=backend), bundle=Path("r"), size_bytes=1).lines
    assert "no fault, memory that nobody wrote filled: nan;" in lines[0]


def test_inspect_counts_what_is_there() -> None:
    records = [record(0), record(1, file=None, name="logits", point="logits")]
    report = inspect_report(manifest(), records, bundle=Path("r"), verified=1)
    assert report.headline == (
        "r1: 2 records, 1 tensor stored, 1 of them verified; 2.0 KiB in 1 file; schema version 2."
    )
    assert report.grids[0].rows[0] == ("0", "prefill", "0-63", "64", "2")
    assert report.grids[3].rows == (
        ("L{layer}_o_proj", "value", "1", "1"),
        ("logits", "value", "1", "0"),
    )
    unverified = inspect_report(manifest(), records, bundle=Path("r"), verified=0)
    assert "1 tensor stored, not verified" in unverified.headline


def test_inspect_of_a_bad_run_is_marked() -> None:
    bad = manifest(ownership=(ownership(VIOLATION),))
    assert inspect_report(bad, [], bundle=Path("r"), verified=0).tone is Tone.BAD


def test_points_that_the_run_has_not_are_named() -> None:
    dense = replace(manifest().backend, engine="dense")
    told = {"bundle": Path("b"), "size_bytes": 1, "unmatched": ("swa_slots", "[/x]*")}
    assert run_report(manifest(backend=dense), **told).lines[-1] == (
        "Not captured: swa_slots, [/x]*: the engine dense has no such boundary at level op."
    )
    assert "this run has no such" in run_report(manifest(), **told).lines[-1]
    assert run_document(manifest(), **told)["unmatched"] == ["swa_slots", "[/x]*"]
    quiet = run_report(manifest(), bundle=Path("b"), size_bytes=1)
    assert not any("Not captured" in line for line in quiet.lines)


def test_a_text_prompt_is_answered_in_text() -> None:
    report = run_report(manifest(), bundle=Path("b"), size_bytes=1, texts=("a [/x]\nb", None))
    assert [line for line in report.lines if line.startswith("Text")] == ["Text: a [/x]\\nb"]
    plain = run_report(manifest(), bundle=Path("b"), size_bytes=1)
    assert not any(line.startswith("Text") for line in plain.lines)
