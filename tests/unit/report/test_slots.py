from io import StringIO
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from swarepro.bundle.schema import Manifest, OwnerRange
from swarepro.report.diff import diff_report
from swarepro.report.model import Report, Tone
from swarepro.report.repeats import determinism_report
from swarepro.report.run import inspect_report, run_report
from swarepro.report.slots import ownership_grids, ownership_sentence, violations_in_order
from swarepro.report.table import render
from tests.unit.report import made
from tests.unit.report.made import VIOLATION, batches, manifest, ownership, two_groups


def test_the_books_of_each_stage_and_group() -> None:
    books, owners = ownership_grids(batches())
    assert books.columns[1:2] + books.columns[4:8] == (
        "group", ">free", ">live", ">evictable", ">reserved",
    )  # fmt: skip
    assert books.rows == (
        ("0", "sliding", "0-11", "128", "110", "6", "10", "2", "6", "0"),
        ("0", "full", "0-11", "128", "100", "6", "20", "2", "6", "0"),
    )
    assert owners.rows == (
        ("0", "sliding", "0", "0-2 -> 1-3"),
        ("0", "sliding", "1", "0 -> 9, 4-5 -> 11-12"),
        ("0", "full", "0", "0-2 -> 1-3"),
        ("0", "full", "1", "0 -> 9, 4-5 -> 11-12"),
    )


def test_shared_slots_are_said_once() -> None:
    aliased = replace(made.FIRST_CROSSED, positions=(7, 8, 9), slots=(0, 0, 0))
    problems = ownership_grids(manifest(ownership=(ownership(aliased),)))[2]
    assert problems.rows[0][5:7] == ("7-9", "0 for all")
    shared = replace(ownership(), owners=(OwnerRange(session=0, start=0, slots=(0,) * 67),))
    _, owners = ownership_grids(manifest(ownership=(shared,)))
    assert owners.rows[0][-1] == "0-66 -> 0 for all"


def test_without_the_shadow_nothing_was_checked() -> None:
    unseen = replace(batches(), shadow=False)
    books = ownership_grids(unseen)[0]
    assert books.title == "KV slots at the end of the run, not checked"
    assert {row[-1] for row in books.rows} == {"-"}
    assert ownership_sentence(unseen) == "Ownership was not checked: the ownership shadow was off."
    for other in (batches(), manifest(), manifest(ownership=())):
        assert "not checked" not in ownership_sentence(other)


def test_violations_come_in_their_order_with_owner_and_user() -> None:
    bad = replace(batches(), ownership=two_groups(broken=True))
    assert [found.order for _, found in violations_in_order(bad.ownership)] == [0, 1, 2]
    problems, meaning = ownership_grids(bad)[2:]
    assert problems.title == "3 ownership violations (owner and user: session at position)"
    assert problems.columns == (
        ">step", ">stage", ">layer", "group", "kind", "positions", "slots", "owner", "user",
    )  # fmt: skip
    assert problems.rows == (
        ("3", "0", "5", "full", "duplicate-slot-store", "7", "3", "0 at 2", "1 at 7"),
        (
            "3",
            "0",
            "3",
            "sliding",
            "foreign-slot-read",
            "4-5, 9",
            "17-18, 40",
            "0 at 100",
            "1 at 4",
        ),
        ("5", "0", "-", "sliding", "mapping-lost", "-", "9", "-", "-"),
    )
    assert [row[0] for row in meaning.rows] == [row[4] for row in problems.rows]
    assert meaning.rows[1][1] == "session 1 reads rows that belong to session 0"


def test_what_is_nowhere_known_has_no_column() -> None:
    nameless = replace(made.FIRST_CROSSED, owner=None, layer=None)
    bad = manifest(ownership=(ownership(nameless),))
    problems = ownership_grids(bad)[2]
    assert "owner" not in problems.columns
    assert ">layer" not in problems.columns
    assert problems.columns[-1] == "user"
    assert "stage 0, full group: position 7 stored" in ownership_sentence(bad)
    plain = ownership_grids(manifest(ownership=(ownership(VIOLATION),)))
    assert len(plain) == 3  # and what it means is a column
    assert plain[2].columns[-1] == "what it means"


def test_version_1_states_no_order_and_is_sorted_by_step() -> None:
    later = replace(VIOLATION, step=4, kind="mapping-lost")
    owned = ownership(later), replace(ownership(VIOLATION), stage=1)
    assert [found.kind for _, found in violations_in_order(owned)] == [
        "sentinel-store",
        "mapping-lost",
    ]


def test_the_books_fit_80_columns() -> None:
    books, _ = ownership_grids(batches())
    lines = drawn(Report(headline="", tone=Tone.PLAIN, grids=(books,)), width=80)
    assert "stage  group    layers  slots  free  live  evictable  reserved  stored  broken" in lines


def drawn(report: Report, *, width: int) -> list[str]:
    console = Console(width=width, file=StringIO(), color_system=None)
    for part in render(report):
        console.print(part)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def reports() -> dict[str, Report]:
    bad: Manifest = replace(batches(), ownership=two_groups(broken=True))
    many = tuple(
        made.boundary(
            "L11_kv_slice_post_write#1", session=session, layer=11, numbers=made.numbers()
        )
        for session in (0, 1)
    )
    return {
        "run": run_report(bad, bundle=Path("r"), size_bytes=1),
        "inspect": inspect_report(bad, [], bundle=Path("r"), verified=0),
        "diff": diff_report(
            made.divergence(
                first=many[0],
                first_state=None,
                first_value=many[0],
                boundaries=many,
                several_sessions=True,
            )
        ),
        "repeats": determinism_report(made.determinism(several_sessions=True), setting="s"),
    }


@pytest.mark.parametrize("name", reports())
def test_tables_of_several_sessions_fit_100_columns(name: str) -> None:
    """No cell is folded: every row of every table stands in one line."""
    report = reports()[name]
    lines = drawn(report, width=100)
    assert max(map(len, lines)) <= 100
    text = [" ".join(line.split()) for line in lines]
    for grid in report.grids:
        for row in grid.rows:
            assert " ".join(" ".join(row).split()) in text
