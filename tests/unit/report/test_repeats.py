from swarepro.points import PointKind
from swarepro.report.model import Tone
from swarepro.report.repeats import (
    bound_sentence,
    classes,
    determinism_report,
    headline,
)
from tests.unit.report import made


def test_nondeterministic_names_the_store_and_the_value() -> None:
    assert headline(made.determinism()) == (
        "NONDETERMINISTIC over 6 repeats: the earliest bad store is step 0,"
        " L0_kv_slice_post_write (3 distinct of 6: 3+2+1); the first value that it harms is"
        " step 1, L0_attention_output (2 distinct of 6: 5+1)."
    )


def test_deterministic_is_said_with_its_n_and_what_n_leaves_open() -> None:
    report = determinism_report(made.deterministic(), setting="Case a.")
    assert report.headline == "DETERMINISTIC in 6 of 6 repeats: no boundary of 1 varies."
    assert report.tone is Tone.GOOD
    assert report.lines == (
        "6 repeats leave open a rate of divergence of up to 39 % (95 %);"
        " 59 repeats would leave 5 %.",
        "The output of every step is the same in every repeat.",
        "Tokens, the same in every repeat: 7.",
        "Case a.",
    )


def test_ownership_names_the_cause() -> None:
    report = determinism_report(
        made.determinism(),
        setting="",
        ownership=(made.ownership(), made.ownership(made.VIOLATION, owned=False)),
    )
    assert report.lines[0] == (
        "Ownership: sentinel-store at step 0, stage 0: positions 0 to 63 stored to SWA slot 0"
        " [/x]. 1 violation in all."
    )
    silent = determinism_report(made.determinism(), setting="", ownership=(made.ownership(),))
    assert not any(line.startswith("Ownership") for line in silent.lines)


def test_the_next_bound_is_a_smaller_one() -> None:
    many = made.deterministic(repeats=59, rate_upper_bound=1 - 0.05 ** (1 / 59))
    assert "299 repeats would leave 1 %" in str(bound_sentence(many))
    huge = made.deterministic(repeats=10**6, rate_upper_bound=3e-6)
    assert str(bound_sentence(huge)).endswith("(95 %).")


def test_a_state_that_no_value_shows() -> None:
    result = made.determinism(first_value_varying=None, outputs_vary=(), tokens=((7,),) * 6)
    assert headline(result).endswith("no captured value varies with it.")
    lines = determinism_report(result, setting="").lines
    assert "A value that does not vary may still be wrong: compare it with a right run." in lines


def test_a_value_first() -> None:
    result = made.determinism(earliest_varying=made.HARMED)
    assert "the earliest bad value is step 1, L0_attention_output" in headline(result)


def test_a_metadata_point_is_not_called_a_store() -> None:
    slots = made.classes("swa_slots", (5, 1), kind=PointKind.METADATA, layer=None)
    assert "the earliest boundary that varies is step 0, swa_slots" in headline(
        made.determinism(earliest_varying=slots)
    )


def test_only_the_tokens_vary() -> None:
    result = made.deterministic(tokens=((1,), (2,)), rate_upper_bound=None)
    assert result.verdict == "NONDETERMINISTIC"
    assert "the generated tokens vary" in headline(result)


def test_the_table_holds_what_varies_and_who_deviates() -> None:
    report = determinism_report(made.determinism(), setting="", commands=("swarepro next",))
    (grid,) = report.grids
    assert grid.title == "2 of 3 boundaries vary"
    assert grid.rows == (
        ("0", "0", "L0_kv_slice_post_write", "state", "3", "3+2+1", "3-5"),
        ("1", "0", "L0_attention_output", "value", "2", "5+1", "5"),
    )
    assert "The output of step 1 varies." in report.lines
    assert "Repeats 3-5 deviate (counted from 0); repeat 0 shows the modal digests." in report.lines
    assert "Tokens of repeats 0-4: 7." in report.lines
    assert "Tokens of repeat 5: 9." in report.lines
    assert report.commands == ("swarepro next",)


def test_the_first_value_is_in_the_table_wherever_it_lies() -> None:
    def rows(num_stores: int) -> tuple[tuple[tuple[str, ...], ...], str | None]:
        stores = tuple(
            made.classes(f"L{layer}_kv_slice_post_write", (5, 1), kind=PointKind.STATE)
            for layer in range(num_stores)
        )
        later = made.classes("L1_attention_output", (5, 1), step=1)
        found = made.determinism(points=(*stores, made.HARMED, later))
        (grid,) = determinism_report(found, setting="").grids
        return grid.rows, grid.note

    value = ("1", "0", "L0_attention_output", "value", "2", "5+1", "5")
    beyond, note = rows(20)
    assert len(beyond) == 14
    assert beyond[12:] == (("...", *("",) * 6), value)
    assert note == "... and 9 more; --json lists all"
    next_one, note = rows(12)  # nothing is left out between them
    assert (len(next_one), next_one[-1], note) == (13, value, "... and 1 more; --json lists all")
    among, note = rows(11)
    assert (len(among), among[-1], note) == (12, value, "... and 1 more; --json lists all")


def test_many_classes_are_grouped() -> None:
    assert classes(made.classes("x", (4, 2, *(1,) * 58))) == "4+2+58x1"
    assert classes(made.classes("x", (1,) * 6)) == "1+1+1+1+1+1"


def test_among_several_sessions_the_session_is_named() -> None:
    store = made.classes("L0_kv_slice_post_write", (5, 1), kind=PointKind.STATE, session=1)
    other = made.classes("L0_kv_slice_post_write", (6,), kind=PointKind.STATE)
    value = made.classes("L0_attention_output", (4, 2), step=1)
    found = made.determinism(
        points=(other, store, value),
        earliest_varying=store,
        first_value_varying=value,
        several_sessions=True,
    )
    report = determinism_report(found, setting="Case a.")
    assert "store is step 0, session 1, L0_kv_slice_post_write (2 distinct" in report.headline
    assert "harms is step 1, session 0, L0_attention_output (2 distinct" in report.headline
    assert report.grids[0].columns[:4] == (">step", ">stage", ">session", "boundary")
    assert [row[2] for row in report.grids[0].rows] == ["1", "0"]


def test_control_one_session_is_not_named() -> None:
    report = determinism_report(made.determinism(), setting="Case a.")
    assert "session" not in " ".join((report.headline, *report.lines, *map(str, report.grids)))


def test_the_first_violation_of_the_modal_repeat_is_first_by_its_order() -> None:
    owned = made.two_groups(broken=True)
    lines = determinism_report(made.determinism(), setting="s", ownership=owned).lines
    assert lines[0].startswith("Ownership: duplicate-slot-store at step 3, stage 0, layer 5, full")
    assert lines[0].endswith("3 violations in all.")
