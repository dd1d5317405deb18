"""A step for which a pool has too few slots: refused whole, and the other sessions go on.

At every step that needs a page, in either pool, in every stage or in the last one alone, where a
tenant has taken what is missing; and in every pool that is smaller than the script needs.
"""

from dataclasses import dataclass, field, replace

import pytest

from swarepro.capture import MemorySink
from swarepro.errors import CapacityError
from swarepro.kvcache import KVGroup
from swarepro.plan import Finish, RunPlan, Span
from swarepro.runtime.stage import Stage
from tests.unit.kvcache.owners import snapshot
from tests.unit.runtime.scheduler import Stepper
from tests.unit.runtime.scripted import (
    OUTPUT,
    WINDOW_LEFT,
    Pools,
    Ran,
    alone,
    batch,
    decode,
    finish,
    prefill,
    prompt,
    run_plan,
    script_plan,
    set_up,
)
from tests.unit.runtime.slot_books import smallest

STAGES = "0:1,1:2,2:3"
LAST = 2
TENANT = 3
PROMPTS = (prompt(22, 1), prompt(13, 2), prompt(9, 3))
SCRIPT = (
    batch(prefill(0, 9), prefill(1, 6)),
    batch(prefill(2, 9)),
    batch(decode(2), prefill(0, 9)),
    finish(2, keep=True),
    batch(prefill(1, 7), prefill(0, 4)),
    batch(decode(1), decode(0), times=4),
    finish(1),
    batch(decode(0), times=3),
)
LAYOUTS = [(1, False), (3, False), (4, True), (16, False)]
POOLS = {KVGroup.FULL: "full", KVGroup.SLIDING: "SWA"}


def plan_of(page_size: int, evict: bool, **capacities: int) -> RunPlan:
    plan = script_plan(SCRIPT, PROMPTS, Pools(page_size=page_size, evict=evict), STAGES)
    return replace(plan, **capacities)


@dataclass
class Driver:
    """Runs a plan; who is refused is finished, the others go on.

    Attributes:
        refused: session and step, in order.
    """

    plan: RunPlan
    refused: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self):
        self.sink = MemorySink([])
        self.execution = set_up(self.plan, STAGES, self.sink, capture=OUTPUT)
        self.stepper = Stepper(self.execution, self.plan)

    @property
    def gone(self):
        return {session for session, _ in self.refused}

    def everything(self):
        """All stages' tables, mappings, free lists and pools, as values that are shared by none."""
        return [
            (
                snapshot(stage.parts.allocator),
                [pool.kv.numpy().tobytes() for pool in stage.pools.values()],
            )
            for stage in self.execution.chain._stages
        ]

    def lacking(self, allocator, span: Span) -> int:
        """Return how many pages a span's session lacks."""
        table = allocator.tables.get(span.session)
        had = 0 if table is None else table.pages.numel()
        return max(0, -(-span.end // allocator.page_size) - had)

    def run(self, *, before=lambda step: None, after_refusal=lambda: None) -> None:
        """Run all steps; ``before`` is called with each, when its actions are done."""
        for step in self.plan.steps:
            self.stepper.act(
                *(action for action in step.actions if action.session not in self.gone)
            )
            spans = tuple(span for span in step.spans if span.session not in self.gone)
            before(replace(step, spans=spans))
            while spans:
                there = self.everything()
                try:
                    self.stepper.run(replace(step, spans=spans, actions=()))
                except CapacityError as error:
                    self.error = error
                    assert self.everything() == there
                    owner = self.execution.chain._stages[0].parts.allocator
                    session = [span for span in spans if self.lacking(owner, span)][-1].session
                    self.refused.append((session, step.index))
                    self.stepper.act(Finish(session=session))
                    after_refusal()
                    spans = tuple(span for span in spans if span.session != session)
                else:
                    break
            for accounts in self.execution.accounts():
                assert all(account.is_exact for account in accounts)

    def check(self) -> None:
        """What ran gave the bytes that it gives alone; who was not refused ran to its end."""
        assert self.execution.log.violations == ()
        ran = Ran(records=tuple(self.sink.records), outcome=None)
        for session in range(len(self.plan.prompts)):
            expected = expected_of(session)
            found = ran.of(session, self.plan)
            if session not in self.gone:
                assert found.keys() == expected.keys()
            assert found.items() <= expected.items()


def expected_of(session: int) -> dict:
    """Return what a session of the script gives alone; the same for all layouts."""
    if session not in _EXPECTED:
        single = alone(plan_of(1, False), session)
        _EXPECTED[session] = run_plan(single, STAGES, capture=OUTPUT).of(session, single)
    return _EXPECTED[session]


_EXPECTED: dict[int, dict] = {}


def steps_that_need(page_size: int) -> list[int]:
    """Return the steps for which some session lacks a page."""
    plan = plan_of(page_size, False)
    pages: dict[int, int] = {}
    found = []
    for step in plan.steps:
        for span in step.spans:
            needed = -(-span.end // page_size)
            if needed > pages.get(span.session, 0):
                pages[span.session] = needed
                found.append(step.index)
    return sorted(set(found))


class Tenant:
    """Takes so many pages of a pool at one step that one is missing there."""

    def __init__(self, driver: Driver, group: KVGroup, at: int, stages: list[int]):
        self.driver, self.group, self.at = driver, group, at
        self.allocators = [
            driver.execution.chain._stages[stage].parts.allocator for stage in stages
        ]

    def arrive(self, step) -> None:
        if step.index != self.at:
            return
        for allocator in self.allocators:
            pool = allocator.full if self.group is KVGroup.FULL else allocator.swa
            if pool is None:
                continue
            kept = [table for table in allocator.tables.values() if table.kept]
            evicted = 0 if self.group is KVGroup.FULL else sum(table.evicted for table in kept)
            evictable = sum(t.pages.numel() for t in kept) - evicted // pool.page_size
            needed = sum(self.driver.lacking(allocator, span) for span in step.spans)
            taken = pool.num_free + evictable - (needed - 1)
            end = taken * pool.page_size
            allocator.ensure((Span(session=TENANT, start=0, end=end),))

    def leave(self) -> None:
        for allocator in self.allocators:
            allocator.finish(TENANT, keep=False)


@pytest.mark.parametrize("stages", [[0, 1, LAST], [LAST]], ids=["all-stages", "last-stage"])
@pytest.mark.parametrize("group", list(KVGroup))
@pytest.mark.parametrize(("page_size", "evict"), LAYOUTS)
def test_a_step_without_room_is_refused_whole(page_size, evict, group, stages):
    at_steps = steps_that_need(page_size)
    assert 0 in at_steps
    assert len(at_steps) >= 4
    for at in at_steps:
        sizes = {"capacity": 112, "swa_capacity": 256}
        if group is KVGroup.SLIDING:
            sizes = {"capacity": 256, "swa_capacity": 112}
        driver = Driver(plan_of(page_size, evict, **sizes))
        tenant = Tenant(driver, group, at, stages)
        driver.run(before=tenant.arrive, after_refusal=tenant.leave)
        assert [step for _, step in driver.refused] == [at]
        assert f"the {POOLS[group]} pool needs" in driver.error.message
        driver.check()


@pytest.mark.parametrize("group", list(KVGroup))
@pytest.mark.parametrize(("page_size", "evict"), LAYOUTS)
def test_every_pool_that_is_too_small(page_size, evict, group):
    full, swa = smallest(plan_of(page_size, evict), window_left=WINDOW_LEFT)
    least = full if group is KVGroup.FULL else swa
    name = "capacity" if group is KVGroup.FULL else "swa_capacity"
    finished = set()
    for size in range(page_size, least + page_size, page_size):
        driver = Driver(plan_of(page_size, evict, **{name: size}))
        driver.run()
        assert bool(driver.refused) == (size < least)
        driver.check()
        finished |= {0, 1, 2} - driver.gone
    assert finished == {0, 1, 2}  # each of them has gone on where another one was refused


def test_a_chain_that_asks_stage_by_stage_is_caught(monkeypatch):
    """The control: the first stages have allocated when the last one refuses."""
    monkeypatch.setattr(Stage, "check", lambda self, step: None)
    driver = Driver(plan_of(4, True, capacity=112))
    tenant = Tenant(driver, KVGroup.FULL, 2, [LAST])
    with pytest.raises(AssertionError):
        driver.run(before=tenant.arrive, after_refusal=tenant.leave)
    assert driver.refused == []
    assert driver.error.message.startswith("the full pool needs")
