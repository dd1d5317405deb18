"""The fill probe, and what a chosen fill does to memory that a schedule would draw."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from swarepro import api
from swarepro.case import load_case
from swarepro.options import RunOptions
from swarepro.runtime.parts import ScratchUse
from swarepro.runtime.schedule import parse_schedule
from swarepro.runtime.scratch import FilledScratch

CASE = load_case(Path(__file__).parents[3] / "cases/unwritten-scratch.toml")


def scratch(fill: float | None, schedule: str) -> FilledScratch:
    order = parse_schedule(schedule)
    return FilledScratch(fill, order, dtype=torch.float32, device=torch.device("cpu"))


@pytest.mark.parametrize("schedule", ["program", "seeded:3"])
@pytest.mark.parametrize("fill", [0.0, 1e4, math.nan])
@pytest.mark.parametrize("use", ScratchUse)
def test_a_chosen_fill_wins_over_the_schedule(use, fill, schedule):
    wanted = torch.full((2, 3), fill)
    found = scratch(fill, schedule).take((2, 3), use)
    assert torch.equal(found.view(torch.int32), wanted.view(torch.int32))


def test_without_a_fill_a_seeded_schedule_draws_partial_results_alone():
    made = scratch(None, "seeded:3")
    assert torch.equal(made.take((2, 3), ScratchUse.OUTPUT), torch.zeros(2, 3))
    drawn = made.take((2, 3), ScratchUse.PARTIAL)
    assert drawn.unique().numel() == 6
    assert drawn.abs().max() <= 0.5
    assert torch.equal(scratch(None, "program").take((2, 3), ScratchUse.PARTIAL), torch.zeros(2, 3))


@pytest.mark.parametrize("schedule", ["program", "seeded:1", "seeded:7"])
def test_the_probe_finds_unwritten_memory_under_every_schedule(schedule):
    options = RunOptions(schedule=schedule, faults=("unwritten-scratch",))
    found = api.probe_fill(CASE, options=options)
    wanted = CASE.expect.faulty.fill
    assert found.verdict == wanted.verdict == "UNWRITTEN_READ"
    assert (found.first.step, found.first.name) == (wanted.first.step, wanted.first.name)
    healthy = api.probe_fill(CASE, options=replace(options, faults=()))
    assert healthy.verdict == "INDEPENDENT"
