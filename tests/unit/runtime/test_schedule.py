"""Schedules are permutations, repeatable, and different where they should be."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swarepro.errors import UsageError
from swarepro.runtime.schedule import (
    NaturalOrder,
    SeededOrder,
    parse_schedule,
    resolve_schedule,
)

HERE = (0, 1, 2)


@given(seed=st.integers(0, 10**18 - 1), num=st.integers(1, 300))
def test_a_seeded_order_is_a_permutation_and_repeats(seed, num):
    order = SeededOrder(seed).order(num, *HERE)
    assert torch.equal(order.sort().values, torch.arange(num))
    assert torch.equal(order, SeededOrder(seed).order(num, *HERE))


def test_the_order_is_the_same_on_every_machine():
    assert SeededOrder(7).order(8, *HERE).tolist() == [4, 1, 7, 6, 2, 5, 0, 3]


@pytest.mark.parametrize(
    "other",
    [
        (1, 1, 2),
        (0, 2, 2),
        (0, 1, 3),
    ],
)
def test_session_step_and_layer_change_the_order(other):
    assert not torch.equal(SeededOrder(7).order(64, *HERE), SeededOrder(7).order(64, *other))
    assert not torch.equal(SeededOrder(7).order(64, *HERE), SeededOrder(8).order(64, *HERE))


def test_parsing():
    assert parse_schedule("program") == parse_schedule("hardware") == NaturalOrder()
    assert NaturalOrder().order(8, *HERE) is None
    assert parse_schedule("seeded:12") == SeededOrder(12)


@pytest.mark.parametrize("text", ["", "seeded", "seeded:", "seeded:-1", "seeded:x", "Program"])
def test_other_schedules_are_refused(text):
    with pytest.raises(UsageError, match="unknown schedule"):
        parse_schedule(text)


@pytest.mark.parametrize(
    ("text", "triton", "resolved"),
    [
        ("auto", "off", "program"),
        ("auto", "interpret", "program"),
        ("auto", "compiled", "hardware"),
        ("seeded:3", "interpret", "seeded:3"),
        ("program", "interpret", "program"),
        ("hardware", "compiled", "hardware"),
    ],
)
def test_what_auto_means(text, triton, resolved):
    assert resolve_schedule(text, triton=triton) == resolved


@pytest.mark.parametrize(
    ("text", "triton"),
    [
        ("hardware", "off"),
        ("hardware", "interpret"),
        ("program", "compiled"),
        ("seeded:3", "compiled"),
    ],
)
def test_a_schedule_that_cannot_be_had_is_refused(text, triton):
    with pytest.raises(UsageError, match="cannot be had where kernels are"):
        resolve_schedule(text, triton=triton)
