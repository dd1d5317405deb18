from swarepro.compare.types import OneSided, Tolerance, Verdict
from swarepro.points import PointKind
from swarepro.report.diff import diff_report, headline
from swarepro.report.model import Tone
from tests.unit.report.made import SLOTS, STORE, VALUE, boundary, divergence, identical, numbers


def test_a_bad_store_names_the_first_value_that_it_harms() -> None:
    assert headline(divergence()) == (
        "DIVERGED. A bad store: the runs part at step 0, L0_kv_slice_post_write (layer 0, state)."
        " It first harms a value at step 1, L0_attention_output (layer 0, value):"
        " 3 of 3 rows, 4 of 4 heads, relative L2 1.99."
    )


def test_a_bad_store_that_harms_nothing() -> None:
    text = headline(divergence(first_value=None, boundaries=(STORE,)))
    assert text.endswith("It harms no captured value.")


def test_what_lies_in_a_pool_before_a_store_is_no_bad_store() -> None:
    """With eviction on one side only, rows about to be written hold what was left there."""
    before = boundary("L0_kv_slice_pre_write", step=1, kind=PointKind.STATE, origin="source")
    found = divergence(first=before, first_state=before, boundaries=(before, VALUE))
    assert headline(found).startswith(
        "DIVERGED. The pool differs before a store: the runs part at step 1, L0_kv_slice_pre_write"
    )
    other_slots = divergence(first=SLOTS, first_state=before, boundaries=(SLOTS, before, VALUE))
    assert "The first difference in a pool, before a store, is at step 1" in headline(other_slots)
    for text in (headline(found), headline(other_slots)):
        assert "bad store" not in text


def test_a_bad_value() -> None:
    found = divergence(first=VALUE, first_state=None, boundaries=(VALUE,))
    assert headline(found).startswith(
        "DIVERGED. A bad value: the runs part at step 1, L0_attention_output (layer 0, value)"
    )


def test_other_slots_come_before_the_bad_store() -> None:
    found = divergence(first=SLOTS, boundaries=(SLOTS, STORE, VALUE))
    assert headline(found).startswith(
        "DIVERGED. The runs use different KV slots: they part at step 0, swa_slots (metadata):"
        " 3 of 3 rows. The first bad store is at step 0, L0_kv_slice_post_write (layer 0, state). "
    )


def test_other_inputs_make_no_store_bad() -> None:
    inputs = boundary("input_ids", layer=None, kind=PointKind.METADATA)
    text = headline(divergence(first=inputs, boundaries=(inputs, STORE, VALUE)))
    assert "The runs were given different inputs" in text
    assert "The first store that differs is at step 0" in text


def test_here_or_before() -> None:
    found = divergence(
        exact=False,
        exact_state=False,
        exact_value=False,
        only_target=(OneSided(step=0, name="L0_q_normed"),),
    )
    report = diff_report(found)
    assert "A store differs: the runs part at or before step 0" in report.headline
    assert "It first harms a value at or before step 1" in report.headline
    assert ("bound", "here or before", "here or before") in report.grids[0].rows
    assert ("its inputs", "equal: a source", "differ: inherited") in report.grids[0].rows
    assert "Only in the target: 1 boundary (step 0 L0_q_normed)." in report.lines
    assert report.lines[-2] == (
        "Points before the first one are on one side only, or could not be judged:"
        " read it as here or before."
    )


def test_inputs_that_nobody_captured_make_no_source() -> None:
    first = boundary("after_layer_0", origin="unknown", numbers=numbers())
    found = divergence(
        first=first,
        first_state=None,
        first_value=first,
        boundaries=(first, VALUE),
        exact=False,
        exact_state=False,
        exact_value=False,
    )
    report = diff_report(found)
    assert report.headline.startswith(
        "DIVERGED. A value differs: the runs part at or before step 1, after_layer_0"
    )
    assert ("its inputs", "no captured input differs") in report.grids[0].rows
    assert report.grids[1].title == (
        "2 boundaries of 384 diverge, 0 of them at a source; at 1 no captured input differs"
    )
    assert (
        "Not all that the first one is computed from was captured and judged on both sides:"
        " read it as here or before."
    ) in report.lines
    text = " ".join((report.headline, *report.lines, *map(str, report.grids)))
    assert "source" not in text.replace("0 of them at a source", "")
    assert "exactly" not in text


def test_what_was_set_otherwise_comes_before_the_answer() -> None:
    faults = "faults (none against skip-swa-allocation [/x])"
    report = diff_report(divergence(differences=(faults, "dtype (bf16 against fp32)")))
    assert report.preface == (f"The runs differ in: {faults}, dtype (bf16 against fp32).",)


def test_what_differs_although_nothing_was_set_otherwise() -> None:
    (said,) = diff_report(divergence()).preface
    assert said.startswith("Nothing that the bundles record was set otherwise")
    assert "the run varies by itself" in said
    assert diff_report(identical()).preface == ()


def test_identical_rows_are_not_said_to_be_all_rows() -> None:
    found = identical(
        align="position",
        exact=False,
        compared=6,
        only_baseline=(OneSided(step=0, name="logits", positions=(63, 64)),),
        only_target=(
            OneSided(step=0, name="after_layer_0", positions=(4, 6)),
            OneSided(step=0, name="after_layer_1", positions=(4, 6)),
        ),
    )
    report = diff_report(found)
    assert report.headline == (
        "IDENTICAL: all 6 boundaries have the same bytes in the rows that both sides have;"
        " positions 63 of 1 boundary only in the baseline;"
        " positions 4-5 of 2 boundaries only in the target."
    )
    assert "Only in the baseline: 1 boundary (step 0 logits at 63)." in report.lines
    assert (
        "Only in the target: 2 boundaries (step 0 after_layer_0 at 4-5, step 0 after_layer_1"
        " at 4-5)."
    ) in report.lines
    near = boundary(verdict=Verdict.WITHIN_TOLERANCE, numbers=numbers())
    text = headline(
        identical(
            verdict=Verdict.WITHIN_TOLERANCE,
            boundaries=(near,),
            tolerance=Tolerance(max_ulp=2),
            only_target=found.only_target,
        )
    )
    assert "equal values within 2 ulp in the rows that both sides have;" in text
    assert "positions 4-5 of 2 boundaries only in the target" in text


def test_identical() -> None:
    report = diff_report(identical())
    assert report.headline == "IDENTICAL: all 384 boundaries have the same bytes on both sides."
    assert report.tone is Tone.GOOD
    assert report.grids == ()
    one = identical(compared=1, only_baseline=(OneSided(step=0, name="logits"),))
    assert headline(one) == (
        "IDENTICAL: the one boundary has the same bytes on both sides; 1 boundary on one side only."
    )


def test_within_tolerance_is_said_with_its_tolerance() -> None:
    near = boundary(verdict=Verdict.WITHIN_TOLERANCE, numbers=numbers())
    found = identical(
        verdict=Verdict.WITHIN_TOLERANCE, boundaries=(near,), tolerance=Tolerance(max_ulp=2)
    )
    assert headline(found) == (
        "WITHIN TOLERANCE: all 384 boundaries have equal values within 2 ulp;"
        " 1 boundary not bitwise."
    )


def test_incomparable_is_never_a_pass() -> None:
    shapes = boundary(verdict=Verdict.INCOMPARABLE, origin=None, reason="other shapes [/x]")
    report = diff_report(identical(verdict=Verdict.INCOMPARABLE, compared=0, boundaries=(shapes,)))
    assert report.headline == "INCOMPARABLE: 0 boundaries could be judged: other shapes [/x]."
    assert report.tone is Tone.UNSURE
    assert report.grids[0].rows == (("1", "L0_attention_output", "other shapes [/x]"),)


def test_only_the_tokens_differ() -> None:
    found = identical(verdict=Verdict.DIVERGED, tokens_differ=True)
    assert "generated tokens differ" in headline(found)


def test_the_milestones_stand_side_by_side() -> None:
    grid = diff_report(divergence()).grids[0]
    assert grid.columns == ("", "first = first state", "first value")
    rows = {row[0]: row[1:] for row in grid.rows}
    assert rows["boundary"] == ("L0_kv_slice_post_write", "L0_attention_output")
    assert rows["its inputs"] == ("equal: a source", "differ: inherited")
    assert rows["rows"] == ("-", "3 of 3: 0-2")
    assert rows["positions"] == ("-", "64-66")
    assert rows["first mismatch"] == ("-", "[0, 0, 1]")
    assert rows["max ulp"] == ("-", "32,589")


def test_a_long_list_is_cut_and_says_so() -> None:
    many = tuple(boundary(f"L{layer}_o_proj", layer=layer) for layer in range(30))
    grid = diff_report(divergence(first=many[0], first_value=many[0], boundaries=many)).grids[1]
    assert grid.title == "30 boundaries of 384 diverge, 0 of them at a source"
    assert len(grid.rows) == 12
    assert grid.note == "... and 18 more; --json lists all"


def test_non_finite_counts_are_in_the_sentence() -> None:
    broken = boundary(numbers=numbers(nonfinite_target=3, relative_l2=None))
    assert "non-finite 0 against 3" in headline(divergence(first=broken, first_state=None))


def test_what_was_identical_before() -> None:
    lines = diff_report(divergence()).lines
    assert lines[0] == (
        "Identical until then: the last one is step 0, L0_kv_slice_pre_write (layer 0, state)."
    )
    assert "No captured boundary before it is identical." in (
        diff_report(divergence(last_identical=None)).lines
    )


def test_an_identical_pair_says_whether_the_bytes_were_checked() -> None:
    note = "Stored bytes were not checked against their digests; --verify does that."
    assert note in diff_report(identical()).lines
    assert note not in diff_report(identical(verified=True)).lines


def of_sessions():
    """Two sessions with a boundary of one name; only that of session 1 is a source."""
    pair = boundary(session=1, origin="source", numbers=numbers()), boundary(session=0)
    return divergence(
        first=pair[0],
        first_state=None,
        first_value=pair[0],
        boundaries=pair,
        last_identical=boundary("L0_rotary_applied", session=0),
        only_target=(
            OneSided(step=0, session=0, name="logits", positions=(4, 6)),
            OneSided(step=0, session=1, name="logits", positions=(9, 10)),
        ),
        several_sessions=True,
    )


def test_among_several_sessions_the_session_is_named() -> None:
    report = diff_report(of_sessions())
    assert report.headline.startswith(
        "DIVERGED. A bad value: the runs part at step 1, session 1, L0_attention_output (layer 0,"
    )
    milestones, diverging = report.grids
    assert milestones.columns == ("", "first = first value")
    assert ("session", "1") in milestones.rows
    assert diverging.columns[:3] == (">step", ">session", "boundary")
    assert [row[1:5] for row in diverging.rows] == [
        ("1", "L0_attention_output", "value", "source"),
        ("0", "L0_attention_output", "value", "inherited"),
    ]
    assert report.lines[:2] == (
        "Identical until then: the last one is step 1, session 0, L0_rotary_applied"
        " (layer 0, value).",
        "Only in the target: 2 boundaries (step 0 session 0 logits at 4-5, step 0 session 1"
        " logits at 9).",
    )


def test_rows_of_two_sessions_are_not_counted_as_one() -> None:
    both = of_sessions().only_target
    text = headline(identical(align="position", only_target=both, several_sessions=True))
    assert text.endswith(
        "; positions 4-5 of session 0 of 1 boundary only in the target;"
        " positions 9 of session 1 of 1 boundary only in the target."
    )


def test_what_could_not_be_compared_names_its_session() -> None:
    refused = boundary(session=1, verdict=Verdict.INCOMPARABLE, origin=None, reason="r")
    found = identical(
        verdict=Verdict.INCOMPARABLE, compared=0, boundaries=(refused,), several_sessions=True
    )
    assert diff_report(found).grids[0].rows == (("1", "1", "L0_attention_output", "r"),)


def test_control_one_session_is_not_named() -> None:
    report = diff_report(divergence(only_target=(OneSided(step=0, name="x", positions=(1, 2)),)))
    text = " ".join((report.headline, *report.lines, *map(str, report.grids)))
    assert "session" not in text
