"""Exact probabilities against counting every case."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarepro.evidence.chance import alike_by_chance, rates_differ_by_chance

_values = st.lists(st.integers(0, 3), min_size=1, max_size=5)


@given(_values, st.integers(1, 5))
def test_alike_is_the_share_of_choices_that_are_all_equal(control, size):
    treatment = [0] * size
    pooled = control + treatment
    chosen = list(combinations(range(len(pooled)), size))
    alike = sum(len({pooled[i] for i in each}) == 1 for each in chosen)
    assert alike_by_chance(control, treatment) == pytest.approx(alike / len(chosen))


@given(st.integers(1, 5), st.integers(1, 5), st.data())
def test_fisher_is_the_share_of_tables_no_likelier(first, second, data):
    hits = data.draw(st.integers(0, first))
    other = data.draw(st.integers(0, second))
    total = hits + other
    tables = [sum(i < first for i in each) for each in combinations(range(first + second), total)]
    ways = {k: tables.count(k) for k in set(tables)}
    wanted = sum(way for way in ways.values() if way <= ways[hits]) / len(tables)
    assert rates_differ_by_chance((hits, first), (other, second)) == pytest.approx(wanted)


def test_known_values():
    """Six different controls, six alike: 1 of C(12, 6); the tea lady's 1 of 35 doubled."""
    assert alike_by_chance(list("abcdef"), ["g"] * 6) == pytest.approx(1 / 924)
    assert rates_differ_by_chance((4, 4), (0, 4)) == pytest.approx(2 / 70)
