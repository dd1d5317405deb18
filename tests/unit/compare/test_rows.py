from itertools import pairwise
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from swarepro.compare.rows import first_appearances, missing, overlaps, whole_records

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


def indexed(ranges):
    return [
        SimpleNamespace(index=index, row_start=start, shape=(rows, 2))
        for index, (start, rows) in enumerate(ranges)
    ]


def held(runs):
    return [row for run in runs for row in range(*run.positions)]


@given(left=RANGES, right=RANGES)
def test_what_one_side_lacks_is_the_rest(left, right):
    one, other = first_appearances(indexed(left)), first_appearances(indexed(right))
    found = missing(one, other)
    assert held(found) == sorted(set(owners(one)) - set(owners(other)))
    assert all(before.positions[1] < after.positions[0] for before, after in pairwise(found))
    for run in found:
        indices = [owners(one)[row][0].index for row in range(*run.positions)]
        assert run.record.index == min(indices)


@given(left=RANGES, right=RANGES)
def test_a_whole_record_is_compared_in_all_rows_with_whole_records(left, right):
    baseline, target = indexed(left), indexed(right)
    one, other = first_appearances(baseline), first_appearances(target)
    mine, theirs = owners(one), owners(other)

    def rows(record):
        return range(record.row_start, record.row_start + record.shape[0])

    def is_compared(record, own, others):
        return all(own[row][0] is record and row in others for row in rows(record))

    expected = [
        record.index
        for record in baseline
        if record.shape[0]
        and is_compared(record, mine, theirs)
        and all(is_compared(theirs[row][0], theirs, mine) for row in rows(record))
    ]
    found = whole_records(overlaps(one, other))
    assert sorted(record.index for record in found) == expected
