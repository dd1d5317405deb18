"""The chart and the table of an error that grows from layer to layer."""

import pytest

from swarepro.compare.assessment import LayerGrowth
from swarepro.report.growth import growth_grids


def layer(number: int, error: float, *, added: float | None = None, floor: float | None = None):
    return LayerGrowth(layer=number, relative_l2=error, cosine=0.5, added=added, floor_l2=floor)


def marks(lines, mark: str) -> list[tuple[int, int]]:
    """Return line and column of each mark, lines from below."""
    return [
        (height, column)
        for height, (_, cells) in enumerate(reversed(lines))
        for column, cell in enumerate(cells)
        if cell == mark
    ]


def test_a_layer_is_a_column_and_a_decade_a_line() -> None:
    chart, _ = growth_grids([layer(3, 2e-5, added=2e-3, floor=2e-6), layer(4, 2e-4, floor=2e-6)])
    assert chart.columns[-1] == "layers 3-4"
    assert (marks(chart.rows, "o"), marks(chart.rows, "+")) == ([(2, 0), (4, 1)], [(6, 0)])
    assert marks(chart.rows, "-") == [(0, 0), (0, 1)]
    assert chart.rows[-1][0] == "1.0e-06"
    assert len({len(cells) for _, cells in chart.rows}) == 1


@pytest.mark.parametrize("errors", [(1.0, 1.1), (1e-12, 1.0), (5e-324, 1e308), (0.0, 1e-3, 1e-3)])
def test_every_error_has_a_mark_and_the_chart_stays_small(errors: tuple[float, ...]) -> None:
    chart, _ = growth_grids([layer(number, error) for number, error in enumerate(errors)])
    assert len(chart.rows) <= 10
    shown = {column for _, column in marks(chart.rows, "o")}
    assert shown == {column for column, error in enumerate(errors) if error > 0}


def test_of_layers_that_share_a_column_the_worst_is_shown() -> None:
    growth = [layer(number, 1e-3 if number == 7 else 1e-6) for number in range(100)]
    chart, _ = growth_grids(growth)
    assert chart.columns[-1] == "layers 0-99, 2 a column"
    assert max(marks(chart.rows, "o"))[1] == 3


def test_the_table_has_the_layers_that_added_most_and_both_ends() -> None:
    growth = [layer(n, 1e-3, added=n / 100 if n in (5, 9, 20) else 1e-9) for n in range(30)]
    _, table = growth_grids(growth)
    shown = [int(row[0]) for row in table.rows]
    assert {0, 5, 9, 20, 29} <= set(shown)
    assert shown == sorted(shown)
    assert table.note == f"the layers that added most; {30 - len(shown)} more with --json"
    assert table.rows[shown.index(20)][2] == "0.2"


def test_what_is_not_known_is_said_to_be_missing() -> None:
    _, table = growth_grids([layer(0, 1e-3), layer(1, 1e-3, added=0.5, floor=0.25)])
    assert [row[2:] for row in table.rows] == [("-", "0.500000", "-"), ("0.5", "0.500000", "0.25")]
    assert table.note is None


@pytest.mark.parametrize("growth", [[], [layer(0, 1e-3)], [layer(0, 0.0), layer(1, 1e-3)]])
def test_one_layer_that_differs_is_no_growth(growth) -> None:
    assert growth_grids(growth) == ()
