"""Patterns against an independent reference: the regular expression that they stand for."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from swarepro.errors import ForeignError
from swarepro.foreign.patterns import FIELDS, MAX_STARS, compile_pattern

CASES = [
    ("model.layers.{layer}.mlp", "model.layers.12.mlp", {"layer": 12}),
    ("*layers.{layer}.mlp*", "a.layers.7.mlp.out", {"layer": 7}),
    ("*layers.{layer}.output", "model.layers.7.output.0", None),
    ("step-{step}/l_out-{layer}", "step-3/l_out-0", {"step": 3, "layer": 0}),
    ("*{layer}", "abc12", {"layer": 12}),
    ("{layer}*", "12abc", {"layer": 12}),
    ("*{layer}*", "ab12cd34", {"layer": 12}),
    ("*a*a*", "banana", {}),
    ("*a*b", "aab", {}),
    ("a*b", "ab", {}),
    ("a*a", "a", None),
    ("ab*ba", "aba", None),
    ("x.{layer}.y*.{step}.z", "x.1.y.y.2.z", {"layer": 1, "step": 2}),
    ("layers.{layer}.", "layers..", None),
    ("layers.{layer}", "layers.-1", None),
    ("layers.{layer}", "layers.1234567890", None),
    ("*{layer}*", "a1234567890", None),
    ("*{layer}b", "1234567890b", None),
    ("a1*{layer}", "a123", None),
    ("a1*{layer}", "a1.23", {"layer": 23}),
    ("*", "", {}),
    ("logits", "logits", {}),
    ("logits", "Logits", None),
]


@pytest.mark.parametrize(("text", "name", "found"), CASES)
def test_matching(text, name, found):
    assert compile_pattern(text).match(name) == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("*a" * (MAX_STARS + 1), "5 stars"),
        ("(a+)+$" * 50, "300 characters"),
        ("", "0 characters"),
        ("{layer}{step}", "nothing stands between"),
        ("L0{layer}", "'0' stands beside"),
        ("{layer}1", "'1' stands beside"),
        ("{colour}", "no such field"),
        ("{layer}.{layer}", "there twice"),
        ("{layer", "not closed"),
        ("layer}", "closes nothing"),
    ],
)
def test_what_is_refused(text, why):
    with pytest.raises(ForeignError, match=re.escape(why)):
        compile_pattern(text)


PIECES = st.lists(
    st.one_of(st.sampled_from(["*", "a", "b.", ".", "/ab"]), st.sampled_from(FIELDS)),
    min_size=1,
    max_size=6,
)
NAMES = st.text(alphabet="ab./12", max_size=14)


class Counted(str):
    """A name that counts how often one of its characters is asked for."""

    asked = 0

    def __getitem__(self, key):
        self.asked += 1
        return super().__getitem__(key)


@given(pieces=PIECES, name=NAMES)
@example(pieces=["*", "layer", "*", "a"], name="1a2a")
@example(pieces=["*", "layer", "*"], name="1" * 12)
def test_a_pattern_matches_what_its_regular_expression_does(pieces, name):
    """The reference backtracks over where stars end; a field takes all digits that there are."""
    text = "".join("{" + x + "}" if x in FIELDS else x for x in pieces)
    try:
        pattern = compile_pattern(text)
    except ForeignError:
        return
    expression = "".join(
        ".*" if x == "*" else f"(?<![0-9])(?P<{x}>[0-9]{{1,9}})(?![0-9])" if x in FIELDS
        else re.escape(x)
        for x in pieces
    )  # fmt: skip
    wanted = re.fullmatch(expression, name, re.DOTALL)
    found = pattern.match(name)
    assert (found is None) == (wanted is None), (text, name)


def test_a_hostile_pair_is_answered_at_once():
    """Without backtracking: a regular expression of this shape takes hours."""
    pattern = compile_pattern("*a{layer}*a{step}*a{rank}*a{session}b")
    assert pattern.match("a1" * 256) is None
    assert pattern.match("a1" * 300 + "b") is None  # longer than any name that is looked at


@pytest.mark.parametrize("text", ["*{layer}b*", "*{layer}b*{step}d*c", "*{step}*{layer}c"])
def test_digits_are_looked_at_a_few_times_each(text):
    """A number is not tried again from each of its digits on."""
    name = Counted("a" + "1" * 500 + "c")
    assert compile_pattern(text).match(name) is None
    assert 0 < name.asked < 5 * len(name)
