import pytest

from swarepro.report.words import count, figure, listed, literal, percent, ranges, size


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain [/x] text", "plain [/x] text"),
        ("a\x1b[31mred", "a\\x1b[31mred"),
        ("two\nlines", "two\\nlines"),
        ("lone \udc80", "lone \\udc80"),
        ("é", "é"),
        (7, "7"),
    ],
)
def test_literal_is_one_printable_line(value: object, shown: str) -> None:
    assert literal(value) == shown


def test_count_agrees_with_its_number() -> None:
    assert count(1, "row") == "1 row"
    assert count(0, "row") == "0 rows"
    assert count(1152, "boundary") == "1,152 boundaries"


def test_figure() -> None:
    assert figure(None) == "-"
    assert figure(32589) == "32,589"
    assert figure(1.98765) == "1.99"
    assert figure(float("inf")) == "inf"
    assert figure(1e-9) == "1e-09"


def test_percent_keeps_two_digits() -> None:
    assert [percent(rate) for rate in (0.393, 0.05, 0.001)] == ["39 %", "5 %", "0.1 %"]


@pytest.mark.parametrize(
    ("num_bytes", "shown"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1,023 bytes"),
        (1024, "1.0 KiB"),
        (2 * 1024**3, "2.0 GiB"),
        (5 * 1024**5, "5120.0 TiB"),
    ],
)
def test_size(num_bytes: int, shown: str) -> None:
    assert size(num_bytes) == shown


def test_ranges_join_neighbours() -> None:
    assert ranges(()) == "-"
    assert ranges((0, 1, 2, 7)) == "0-2, 7"
    assert ranges((0, 2, 4, 6), most=2) == "0, 2 and 2 more"


def test_listed_says_what_it_leaves_out() -> None:
    assert listed((), most=2) == "none"
    assert listed((1, 2), most=2) == "1, 2"
    assert listed((1, 2, 3), most=2) == "1, 2 and 1 more"
