from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from swarepro.compare.rows import first_appearances, overlaps

RANGES = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8)), max_size=6)


def records(ranges):
    return [SimpleNamespace(row_start=start, shape=(rows, 2)) for start, rows in ranges]


def owners(segments):
    """Which (record, row) each position belongs to, position by position."""
    return {
        segment.position + i: (segment.record, segment.row + i)
        for segment in segments
        for i in range(segment.num_rows)
    }


def naive(group):
    found = {}
    for record in group:
        for row in range(record.shape[0]):
            found.setdefault(record.row_start + row, (record, row))
    return found


@given(RANGES)
def test_each_position_belongs_to_the_earliest_record_that_has_it(ranges):
    group = records(ranges)
    segments = first_appearances(group)
    assert owners(segments) == naive(group)
    positions = [segment.position for segment in segments]
    assert positions == sorted(positions)
    assert sum(segment.num_rows for segment in segments) == len(naive(group))


@given(RANGES, RANGES)
def test_overlaps_are_the_common_positions(left, right):
    one, other = records(left), records(right)
    common = overlaps(first_appearances(one), first_appearances(other))
    found = {
        part.position + i: (
            (part.baseline, part.baseline_row + i),
            (part.target, part.target_row + i),
        )
        for part in common
        for i in range(part.num_rows)
    }
    mine, theirs = naive(one), naive(other)
    assert found == {p: (mine[p], theirs[p]) for p in mine.keys() & theirs.keys()}
    assert [part.position for part in common] == sorted(part.position for part in common)
