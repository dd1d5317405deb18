import pytest
from rich.console import Console

from swarepro.report.diff import diff_report
from swarepro.report.model import Grid, Report, Tone
from swarepro.report.repeats import determinism_report
from swarepro.report.table import render
from tests.unit.report import made


def drawn(report: Report, *, width: int = 100) -> str:
    console = Console(width=width, force_terminal=False, markup=False, highlight=False)
    with console.capture() as capture:
        for part in render(report):
            console.print(part)
    return capture.get()


def test_markup_in_values_is_printed_as_it_is() -> None:
    cell = "[/x] [red]runs[/red] [token hidden]"
    report = Report(
        headline=cell,
        tone=Tone.BAD,
        grids=(Grid(title=cell, columns=(cell,), rows=((cell,),), note=cell),),
        lines=(cell,),
        commands=(cell,),
        preface=(cell,),
    )
    assert drawn(report).count(cell) == 8


def test_the_preface_stands_above_the_headline() -> None:
    text = drawn(Report(headline="answer", tone=Tone.PLAIN, preface=("before",)))
    assert text.splitlines()[:2] == ["before", "answer"]


@pytest.mark.parametrize("width", [80, 100])
def test_tables_fit_the_terminal_and_fold_no_name(width: int) -> None:
    full = made.divergence(
        first=made.SLOTS, boundaries=(made.SLOTS, made.STORE, made.VALUE), tokens_differ=True
    )
    for report in (diff_report(full), determinism_report(made.determinism(), setting="")):
        text = drawn(report, width=width)
        assert max(map(len, text.splitlines())) <= width
        table = text.partition("\n\n")[2]
        assert "L0_kv_slice_post_write" in table
        assert "L0_attention_output" in table


def test_a_grid_without_a_title_has_no_empty_line() -> None:
    grid = Grid(title="", columns=("a",), rows=(("b",),))
    text = drawn(Report(headline="h", tone=Tone.PLAIN, grids=(grid,)))
    assert text.splitlines()[:3] == ["h", "", "a"]


def test_a_row_has_as_many_cells_as_columns() -> None:
    with pytest.raises(ValueError, match="2 cells for 1 columns"):
        Grid(title="t", columns=("a",), rows=(("b", "c"),))
