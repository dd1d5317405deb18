"""Eight sessions, two thousand steps, pools of a fifth of what the sessions need together."""

import random
import sys
from dataclasses import replace

import pytest

from swarepro.capture import MemorySink
from swarepro.plan import RunPlan, Step, plan_stages
from tests.unit.runtime.scheduler import Job, Scheduler, Stepper
from tests.unit.runtime.scripted import (
    NUM_LAYERS,
    OUTPUT,
    STAGES,
    WINDOW_LEFT,
    Ran,
    assert_as_alone,
    prompt,
    set_up,
)
from tests.unit.runtime.test_scripts_machine import Accounting, stage_books

STEPS = 2000
FIFTH = 5
CHUNK = 6
CUT = STAGES[2]
# A conversation of three turns, one of two that begin alike, and three of their own.
JOBS = (
    Job(prompt=prompt(190, 1), decodes=0, keep=True),
    Job(prompt=prompt(45, 3), decodes=420, keep=True),
    Job(prompt=prompt(270, 1), decodes=2, keep=True, after=0),
    Job(prompt=prompt(300, 1), decodes=180, keep=False, after=2),
    Job(prompt=prompt(60, 4), decodes=420, keep=True),
    Job(prompt=prompt(65, 3), decodes=420, keep=True, after=1),
    Job(prompt=prompt(130, 2), decodes=590, keep=False),
    Job(prompt=prompt(20, 5), decodes=700, keep=False),
)


def run_all(plan: RunPlan, scheduler: Scheduler, report=lambda text: None, faults=()):
    """Let the scheduler run all jobs; return the steps and what they gave."""
    sink = MemorySink([])
    execution = set_up(plan, CUT, sink, capture=OUTPUT, faults=faults)
    stepper = Stepper(execution, plan)
    accounting = Accounting(plan)
    steps: list[Step] = []
    for step in scheduler.steps():
        stepper.run(step)
        accounting(execution, step)
        steps.append(step)
        if len(steps) % 100 == 0:
            (full, sliding), *_ = execution.accounts()
            report(
                f"{len(steps)} steps, {scheduler.tally.admitted} sessions begun;"
                f" full pool {full.free} free, {full.live} live, {full.evictable} evictable;"
                f" SWA pool {sliding.free} free, {sliding.live} live"
            )
    assert execution.log.violations == ()
    stepper.act(*scheduler.drain())
    for accounts in execution.accounts():
        for account in accounts:
            assert (account.free, account.positions) == (account.capacity, 0)
    for shadow in execution._shadows:
        shadow.end()
    assert execution.log.violations == ()
    return replace(plan, steps=tuple(steps)), Ran(records=tuple(sink.records), outcome=None)


def plan_of(jobs, capacity: int, swa_capacity: int, *, page_size: int, evict: bool) -> RunPlan:
    """Return the plan of the jobs, without its steps: the scheduler finds them."""
    return RunPlan(
        prompts=tuple(job.prompt for job in jobs),
        steps=(),
        stages=plan_stages(stages=CUT, layers=None, num_layers=NUM_LAYERS),
        capacity=capacity,
        swa_capacity=swa_capacity,
        page_size=page_size,
        evict=evict,
    )


def scheduler_of(jobs, plan: RunPlan, seed: int) -> Scheduler:
    return Scheduler(
        jobs=list(jobs),
        books=stage_books(plan)[0],
        most_running=3,
        most_chunk=CHUNK,
        rng=random.Random(seed),
    )


FEW = (
    Job(prompt=prompt(20, 1), decodes=0, keep=True),
    Job(prompt=prompt(12, 2), decodes=9, keep=False),
    Job(prompt=prompt(29, 1), decodes=3, keep=True, after=0),
    Job(prompt=prompt(9, 3), decodes=5, keep=False),
)


def test_few_sessions_and_a_leak():
    """The same in short; and the control: slots that are never free again are seen at once."""
    plan = plan_of(FEW, 56, 56, page_size=4, evict=True)
    scheduler = scheduler_of(FEW, plan, 1)
    ran_plan, ran = run_all(plan, scheduler)
    assert (scheduler.tally.admitted, scheduler.tally.reused) == (4, 1)
    assert scheduler.tally.mixed
    assert_as_alone(ran_plan, ran, CUT, capture=OUTPUT)
    roomy = plan_of(FEW, 112, 112, page_size=4, evict=True)
    run_all(roomy, scheduler_of(FEW, roomy, 1))
    with pytest.raises(AssertionError, match="free"):
        run_all(roomy, scheduler_of(FEW, roomy, 1), faults=("finish-leaks-slots",))


@pytest.mark.slow
@pytest.mark.parametrize(("page_size", "evict", "seed"), [(4, True, 3), (16, False, 1)])
def test_eight_sessions_in_a_fifth_of_what_they_need(page_size, evict, seed, capsys):
    total = sum(job.rows for job in JOBS)
    capacity = swa_capacity = total // FIFTH // page_size * page_size
    if evict:  # they need far less: window, chunk and three pages each
        needed = len(JOBS) * (-(-(WINDOW_LEFT + CHUNK) // page_size) + 3)
        swa_capacity = needed // FIFTH * page_size
    plan = plan_of(JOBS, capacity, swa_capacity, page_size=page_size, evict=evict)

    def report(text: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n[pages of {page_size}] {text}")
            sys.stdout.flush()

    scheduler = scheduler_of(JOBS, plan, seed)
    ran_plan, ran = run_all(plan, scheduler, report)
    tally = scheduler.tally
    report(f"{tally}; pools of {capacity} and {swa_capacity} for {total} positions")
    assert tally.admitted == len(JOBS)
    assert tally.steps >= STEPS
    assert min(tally.mixed, tally.chunks, tally.decodes) >= 20
    assert tally.finished and tally.kept and tally.reused >= 2 and tally.given_up
    assert_as_alone(ran_plan, ran, CUT, capture=OUTPUT)
    report("every session gave the bytes that it gives alone")
