"""A row that is stored late: when, what sees it, and that nothing is lost."""

import pytest

from swarepro import api
from swarepro.capture import MemorySink
from swarepro.options import RunOptions, no_progress
from swarepro.runs.intervene import intervene_case
from swarepro.runs.once import execution
from swarepro.runs.prepare import prepare

LATE = RunOptions(faults=("late-store-row",))
SEEDS = [f"seeded:{seed}" for seed in range(6)]


def logits(sink):
    return [(r.step, r.digest) for r in sink.records if r.name == "logits"]


def run_steps(name, options, schedule, *, last="program"):
    """Run all steps but the last one under ``schedule``, and that one under ``last``."""
    prepared = prepare(api.find_case(name), options, copies=0, progress=no_progress)
    run = execution(prepared, sink := MemorySink([]), schedule=schedule)
    run.run_steps(slice(0, -1))
    run.use(last, sink)
    run.run_steps(slice(len(prepared.plan.steps) - 1, None))
    return run, sink


def pools(run):
    return {name: digest for name, digest in run.state().items() if "pool" in name}


def test_the_schedule_decides_and_about_half_of_the_rows_are_late():
    late = []
    for schedule in SEEDS:
        run, _ = run_steps("late-store-row", LATE, schedule, last=schedule)
        stores = [stage.parts.store._inner for stage in run._stages]  # inside the shadow's
        late.append({layer for store in stores for layer in store._late})
    assert len({frozenset(layers) for layers in late}) == len(SEEDS)
    assert 0.3 < sum(map(len, late)) / (12 * len(SEEDS)) < 0.7
    run, _ = run_steps("late-store-row", LATE, "program")
    assert not any(stage.parts.store._inner._late for stage in run._stages)


@pytest.mark.parametrize("schedule", SEEDS[:3])
def test_chunks_are_right_and_no_row_is_lost(schedule):
    """anchor-a has two chunks: what is late in the first is there before the second reads it."""
    healthy, wanted = run_steps("anchor-a", RunOptions(), "program")
    run, sink = run_steps("anchor-a", LATE, schedule)
    assert logits(sink) == logits(wanted)
    assert pools(run) == pools(healthy)


@pytest.mark.parametrize("schedule", SEEDS[:3])
def test_after_a_reset_no_session_sees_a_row_of_the_last_one(schedule):
    """A late row lands in the new session's pools, in a slot that is free or stored to after it."""
    shown = []
    for options in (RunOptions(), LATE):
        _, sink = run_steps("reset-zeroes-free-list", options, schedule)
        seen = [r.digest for r in sink.records if r.step == 3 and "post_write" in r.name]
        shown.append((logits(sink), seen))
    assert len(shown[0][1]) == 12
    assert shown[0] == shown[1]


@pytest.mark.parametrize("schedule", SEEDS[:3])
def test_one_run_under_a_seeded_schedule_shows_the_row_to_the_shadow(schedule):
    case = api.find_case("late-store-row")
    found = api.watch_case(case, options=RunOptions(faults=LATE.faults, schedule=schedule))
    assert {violation.kind for violation in found.violations} == {"row-changed-since-write"}
    assert found.violations[0].step == 2
    assert api.watch_case(case, options=LATE).violations == ()  # program
    assert api.watch_case(case, options=RunOptions(schedule=schedule)).violations == ()


def test_the_order_is_the_cause_and_allocation_is_not():
    found = intervene_case(
        api.find_case("late-store-row"),
        factors=("program-order", "alloc-swa", "alternate-route"),
        step=2,
        trials=6,
        options=LATE,
        progress=no_progress,
    )
    assert found.varying_outputs == ()
    assert {each.factor: each.verdict for each in found.factors} == {
        "program-order": "STABILISES",
        "alloc-swa": "REJECTED",
        "alternate-route": "REJECTED",  # it reads its own row back, too
    }
    assert found.factors[0].control.first_value_varying.name == "L0_attention_output"
