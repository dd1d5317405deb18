"""The first token that two runs chose otherwise, and what the logits say of it."""

from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from swarepro import points
from swarepro.compare.flips import find_flips, first_other_input
from swarepro.errors import IncomparableError
from tests.unit.bundle.factory import Run, bf16, item, spans

LOGITS = np.random.default_rng(2).normal(size=(1, 9)).astype(np.float32)


def run(tokens=((7, 8),), *, prompts=((1, 2, 3),), algorithm=None) -> Run:
    record, array, stored = item(points.LOGITS, LOGITS, row_start=2)
    if algorithm is not None:
        record, stored = structs.replace(record, algorithm=algorithm), False
    return Run(items=[(record, array, stored)], steps=spans((0, 3)), prompts=prompts, tokens=tokens)


@pytest.fixture
def flips(tmp_path: Path):
    return lambda one, other: find_flips(one.open(tmp_path / "b"), other.open(tmp_path / "t"))


def test_of_several_tokens_the_first_is_told(flips) -> None:
    (flip,) = flips(run(((7, 8, 5),)), run(((7, 3, 4),)))
    assert (flip.session, flip.position, flip.baseline, flip.target) == (0, 3, 8, 3)
    assert first_other_input((flip,)) == {0: 4}


def test_control_equal_tokens_are_no_flip(flips) -> None:
    assert flips(run(((7, 8),)), run(((7, 8, 5),))) == ()


def test_the_logits_that_chose(flips) -> None:
    (flip,) = flips(run(((7,),)), run(((3,),)))
    gap = float(LOGITS[0, 7]) - float(LOGITS[0, 3])
    assert (flip.position, flip.baseline_gap, flip.target_gap) == (2, gap, gap)
    assert (flip.apart, flip.equal) == (0.0, True)


@pytest.mark.parametrize("sides", [((), (1, 2, 3)), ((1, 2, 3), ())])
def test_a_prompt_that_one_side_does_not_say_is_no_other_prompt(flips, sides) -> None:
    (flip,) = flips(run(((7,),), prompts=sides[:1]), run(((3,),), prompts=sides[1:]))
    assert flip.position == 2


def test_another_prompt_is_refused(flips) -> None:
    with pytest.raises(IncomparableError, match="session 0 has other prompts"):
        flips(run(), run(prompts=((1, 2, 4),)))


def test_digests_of_two_kinds_tell_nothing(flips) -> None:
    (flip,) = flips(run(((7,),)), run(((3,),), algorithm="swd_128"))
    assert (flip.equal, flip.apart) == (None, None)


def test_equal_bytes_of_two_dtypes_are_other_logits(flips) -> None:
    """The bits of bfloat16, read as float16."""
    sides = []
    for dtype, tokens in (("BF16", ((7,),)), ("F16", ((3,),))):
        array = bf16(LOGITS).view("<f2" if dtype == "F16" else "<u2")
        made = run(tokens)
        made.items = [item(points.LOGITS, array, dtype=dtype, row_start=2)]
        sides.append(made)
    assert sides[0].items[0][0].digest == sides[1].items[0][0].digest
    (flip,) = flips(*sides)
    assert flip.equal is False
    assert flip.apart > 0
