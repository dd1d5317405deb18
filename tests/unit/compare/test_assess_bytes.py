"""Against a floor: bytes that differ without a value that does, and logits that say nothing."""

import warnings
from collections.abc import Callable
from math import inf, nan

import numpy as np
import pytest

from swarepro import points
from swarepro.compare.assessment import VerdictClass
from swarepro.report.assessment import assessment_report
from tests.unit.bundle.factory import VIEWS, Run, item
from tests.unit.compare.assessing import ROWS, run

PLACE = "L1_attention_output"
Change = Callable[[str, np.ndarray], None]


def at(name: str, place, value) -> Change:
    """Put ``value`` at ``place`` of the tensor ``name``."""

    def change(found: str, rows: np.ndarray) -> None:
        if found == name:
            rows[place] = value

    return change


def with_payload(name: str, rows: np.ndarray) -> None:
    if name == PLACE:
        rows.view(np.uint32)[2, 0, 0] = 0x7FC00001


def widened(made: Run, *names: str) -> Run:
    """Store tensors in float64: all of them, or those named."""
    made.items = [
        item(
            points.by_name(record.point),
            array.astype(VIEWS["F64"]),
            dtype="F64",
            layer=record.layer,
            step=record.step,
            row_start=record.row_start,
        )
        if not names or record.name in names
        else (record, array, store)
        for record, array, store in made.items
    ]
    return made


def replaced(made: Run, array: np.ndarray, *, point, layer=None, dtype="F32") -> Run:
    """Put another tensor in the place of ``point``."""
    name = point.concrete(layer)
    made.items = [
        item(point, array, dtype=dtype, layer=layer, row_start=record.row_start)
        if record.name == name
        else (record, old, store)
        for record, old, store in made.items
    ]
    return made


FIRST = (2, 0, 0)


@pytest.mark.parametrize(
    "pair",
    [
        (run(at(PLACE, FIRST, 0.0)), run(at(PLACE, FIRST, -0.0))),
        (run(at(PLACE, FIRST, nan)), run(with_payload)),
        (run(), widened(run(), PLACE)),
    ],
    ids=["minus zero", "payload of a NaN", "one value in two dtypes"],
)
def test_other_bytes_are_never_called_identical(assessed, pair) -> None:
    found = assessed(*pair)
    assert found.verdict is VerdictClass.NOISE
    assert (found.compared, found.identical) == (10, 9)
    assert [(each.name, each.worst) for each in found.within] == [(PLACE, 0.0)]
    headline = assessment_report(found).headline
    assert headline == "NOISE. 1 boundary differs in bytes alone: every value is the same."


def test_the_same_bytes_joined_from_other_chunks_are_identical(assessed) -> None:
    found = assessed(run(), run(steps=((0, 4), (4, ROWS))))
    assert (found.verdict, found.identical) == (VerdictClass.IDENTICAL, 10)


def test_what_differs_in_bytes_alone_is_no_source(assessed) -> None:
    """What comes behind -0.0 is held to one operation, as if nothing before it differed."""

    def later(name: str, rows: np.ndarray) -> None:
        at(PLACE, FIRST, -0.0)(name, rows)
        if name == "after_layer_2":
            rows += 1.0

    found = assessed(run(at(PLACE, FIRST, 0.0)), run(later))
    assert found.verdict is VerdictClass.WRONG
    assert (found.first.name, found.first.is_source) == ("after_layer_2", True)


def sized(value: float) -> Run:
    shape = (ROWS, 2, 4)
    return replaced(
        widened(run()),
        np.full(shape, value),
        point=points.ATTENTION_OUTPUT,
        layer=1,
        dtype="F64",
    )


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [(1e-300, 2e-300), (5e-324, 1e-323), (1e200, 2e200), (4e307, 8e307), (0.0, 5e-324)],
)
def test_values_of_any_size_are_told_apart(assessed, mine: float, theirs: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = assessed(sized(mine), sized(theirs))
    assert found.verdict is VerdictClass.WRONG
    assert found.first.name == PLACE
    assert found.first.worst == pytest.approx(1.0 if mine else inf)
    if mine:
        assert found.first.cosine == pytest.approx(1.0)


def test_integers_that_float64_cannot_tell_apart_are_other_integers(assessed) -> None:
    def ids(last: int) -> Run:
        made = run()
        array = np.array([1, 2, 3, 4, 5, last], dtype=np.int64)
        made.items.insert(0, item(points.INPUT_IDS, array, dtype="I64"))
        return made

    found = assessed(ids(2**53), ids(2**53 + 1))
    assert found.verdict is VerdictClass.WRONG
    assert (found.first.name, found.first.positions) == ("input_ids", (5,))


def chosen(values, *, token: int) -> Run:
    """A run whose last row has these logits and chooses ``token``."""
    made = run(tokens=((token,),))
    made.prompts = (tuple(range(ROWS)),)
    return replaced(made, np.array([values]), point=points.LOGITS)


LOGITS = [1.0, 2.0, 3.0, 9.0, 0.0]


@pytest.mark.parametrize(
    ("mine", "theirs", "token", "gaps"),
    [
        (LOGITS, LOGITS, 700, (None, None)),
        (LOGITS, [*LOGITS, 10.0], 5, (None, -1.0)),
        ([nan] * 5, [nan] * 5, 2, (None, None)),
        ([-inf] * 5, [-inf] * 5, 2, (0.0, 0.0)),
        (LOGITS, [1.0, 2.0, inf, inf, 0.0], 2, (6.0, 0.0)),
    ],
    ids=["no such token", "two vocabularies", "NaN", "all masked", "infinite"],
)
def test_logits_that_do_not_say_why_a_token_was_chosen(assessed, mine, theirs, token, gaps) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = assessed(chosen(mine, token=3), chosen(theirs, token=token))
    (flip,) = found.flips
    assert (flip.baseline_gap, flip.target_gap) == gaps
    assert assessment_report(found).headline


def test_two_vocabularies_are_not_judged_and_do_not_drift(assessed) -> None:
    found = assessed(chosen(LOGITS, token=3), chosen([*LOGITS, 0.0], token=3))
    assert found.verdict is VerdictClass.INCOMPARABLE
    assert "rows of shape [5] and [6]" in found.reason
    assert found.drift is None


def with_tokens(*tokens: int, logits: float = 1.0, has_logits: bool = True) -> Run:
    """A run in two chunks: what the first one chooses is thrown away."""
    made = run(
        lambda name, rows: name == "logits" and np.multiply(rows, logits, out=rows),
        steps=((0, 4), (4, ROWS)),
    )
    made.prompts = (tuple(range(ROWS)),)
    for step, (row, token) in enumerate(zip((3, 5), tokens, strict=True)):
        last = max(i for i, (record, *_) in enumerate(made.items) if record.step == step)
        array = np.array([token], dtype=np.int64)
        made.items.insert(
            last + 1, item(points.TOKEN, array, dtype="I64", step=step, row_start=row)
        )
    if not has_logits:
        made.items = [each for each in made.items if each[0].name != "logits"]
    return made


@pytest.mark.parametrize(
    ("other", "verdict"),
    [
        (with_tokens(7, 7), VerdictClass.IDENTICAL),
        (with_tokens(8, 7), VerdictClass.TIE),
        (with_tokens(7, 8), VerdictClass.TIE),
        (with_tokens(8, 7, logits=1.0005), VerdictClass.NOISE),
        (with_tokens(8, 7, has_logits=False), VerdictClass.INCOMPARABLE),
    ],
    ids=["same", "in the prompt", "not as generated", "by rounding", "nobody knows"],
)
def test_a_token_that_no_generated_one_accounts_for(assessed, other: Run, verdict) -> None:
    """A dump may hold another token than it says, and a chunk's last row chooses one, too."""
    found = assessed(with_tokens(7, 7), other)
    assert found.verdict is verdict
    assert found.flips == ()
    assert assessment_report(found).headline.startswith(str(verdict))


def test_a_token_chosen_from_the_same_logits_beside_noise_is_wrong(assessed) -> None:
    other = with_tokens(8, 7)
    other.items = [
        (
            item(
                points.AFTER_LAYER,
                array * np.float32(1.0005),
                layer=2,
                step=record.step,
                row_start=record.row_start,
            )
            if record.name == "after_layer_2"
            else (record, array, store)
        )
        for record, array, store in other.items
    ]
    found = assessed(with_tokens(7, 7), other)
    assert found.verdict is VerdictClass.WRONG
    assert (found.first.name, found.first.positions) == ("token", (3,))
