"""The lifecycle inside the runtime: every role, every chunking, every reset."""

from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from swarepro.backend import Backend
from swarepro.build import Execution, Setting, load_model
from swarepro.capture import MemorySink
from swarepro.case import CaseSpec, PromptSpec, SessionSpec
from swarepro.checkpoint import open_checkpoint
from swarepro.errors import CapacityError, PositionGapError
from swarepro.kvcache import HybridKVCache, KVGroup, SlotLifecycle
from swarepro.plan import RunPlan, Span, Step, plan_stages
from swarepro.runs.prepare import plan_case
from swarepro.runtime.groups import stage_groups
from tests.unit.runtime.scripted import OUTPUT

CHECKPOINT = open_checkpoint("synthetic:gemma4-tiny?layers=6")
CAPACITY = 48


@st.composite
def sessions(draw):
    """One to three sessions of random chunkings and decode steps that fit the capacity."""
    found = []
    for seed in range(draw(st.integers(1, 3))):
        chunks = draw(st.lists(st.integers(1, 12), min_size=1, max_size=4))
        rows = sum(chunks)
        decode = draw(st.integers(0, min(3, CAPACITY - rows)))
        found.append(
            SessionSpec(
                prompt=PromptSpec(random=rows, seed=seed), chunks=tuple(chunks), decode=decode
            )
        )
    return tuple(found)


def run(sessions, *, stages=None, faults=(), on_step=lambda step: None):
    case = CaseSpec(name="x", model="x", sessions=sessions, stages=stages, capacity=CAPACITY)
    return run_plan(plan_case(case, CHECKPOINT), faults=faults, on_step=on_step)


def run_plan(plan, *, faults=(), on_step=lambda step: None):
    return set_up(plan, faults).run(on_step=on_step)


def set_up(plan, faults=()):
    setting = Setting(capture=OUTPUT, faults=faults, schedule="program", route="eager")
    return Execution(plan, model_of(plan.stages), setting, sink=MemorySink([]))


@cache
def model_of(stages):
    plan = RunPlan(prompts=(), steps=(), stages=stages, capacity=1, swa_capacity=1)
    return load_model(CHECKPOINT, plan, dtype="fp32", backend=Backend(device="cpu", triton="off"))


@settings(max_examples=15)
@given(sessions=sessions(), stages=st.sampled_from([None, "0:2,2:4,4:6", "0:5,5:6"]))
def test_random_sessions_own_distinct_slots_and_the_books_balance(sessions, stages):
    outcome = run(sessions, stages=stages)
    positions = sum(sessions[-1].chunks) + sessions[-1].decode
    assert outcome.violations == ()
    for account in (account for accounts in outcome.accounts for account in accounts):
        assert account.is_exact
        assert (account.capacity, account.live, account.positions) == (
            CAPACITY,
            positions,
            positions,
        )
        # Whatever the chunking was.
        assert account.owners == ((len(sessions) - 1, 0, tuple(range(1, positions + 1))),)


@settings(max_examples=10)
@given(sessions=sessions())
def test_the_same_runs_without_allocation_are_caught(sessions):
    outcome = run(sessions, faults=("skip-swa-allocation",))
    assert outcome.violations[0].kind == "sentinel-store"
    assert outcome.violations[0].step == 0


def test_a_stage_of_full_layers_alone_has_no_swa_account():
    outcome = run((SessionSpec(prompt=PromptSpec(random=9), chunk=4),), stages="0:5,5:6")
    groups = [[account.group for account in accounts] for accounts in outcome.accounts]
    assert groups == [[KVGroup.FULL, KVGroup.SLIDING], [KVGroup.FULL]]


def gapped_plan() -> RunPlan:
    """Step 1 begins two positions beyond the end of step 0."""
    case = CaseSpec(
        name="x",
        model="x",
        sessions=(SessionSpec(prompt=PromptSpec(random=12), chunks=(4, 8)),),
        capacity=CAPACITY,
    )
    plan = plan_case(case, CHECKPOINT)
    late = Step(index=1, spans=(Span(session=0, start=6, end=12),))
    return RunPlan(
        prompts=plan.prompts,
        steps=(plan.steps[0], late),
        stages=plan.stages,
        capacity=plan.capacity,
        swa_capacity=plan.swa_capacity,
    )


def test_a_position_gap_is_refused_before_the_step_runs():
    done = []
    with pytest.raises(PositionGapError, match="begins a call at position 6"):
        run_plan(gapped_plan(), on_step=done.append)
    assert [step.index for step in done] == [0]


def test_without_a_check_the_pages_of_a_gap_go_unseen(monkeypatch):
    """The control: a lifecycle that asks for room alone runs on over a gap that it fills."""

    def asks_for_room_alone(self, spans):
        return None

    monkeypatch.setattr(SlotLifecycle, "check", asks_for_room_alone)
    done = []
    run_plan(gapped_plan(), on_step=done.append)
    assert [step.index for step in done] == [0, 1]


def test_exhaustion_ends_the_run_at_the_step_that_does_not_fit():
    case = CaseSpec(
        name="x",
        model="x",
        sessions=(SessionSpec(prompt=PromptSpec(random=20), chunk=8),),
        capacity=CAPACITY,
        swa_capacity=16,
    )
    done = []
    with pytest.raises(CapacityError, match="needs 4 more slots and has 0 free or evictable of 16"):
        run_plan(plan_case(case, CHECKPOINT), on_step=done.append)
    assert [step.index for step in done] == [0, 1]


@pytest.mark.parametrize("page_size", [1, 4])
def test_a_pool_has_one_page_more_than_its_capacity(page_size):
    cache = HybridKVCache(
        stage_groups(CHECKPOINT.config, plan_stages(stages=None, layers=None, num_layers=6)[0]),
        capacity=8 * page_size,
        swa_capacity=5 * page_size,
        page_size=page_size,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    assert cache.pools[KVGroup.FULL].kv.shape[1] == 9 * page_size
    assert cache.pools[KVGroup.SLIDING].kv.shape[1] == 6 * page_size


TWO_SESSIONS = (
    SessionSpec(prompt=PromptSpec(random=20, seed=1), chunk=8),
    SessionSpec(prompt=PromptSpec(random=9, seed=2), chunk=8),
)


def test_a_stale_mapping_is_seen_at_the_reset():
    """Step 3 is the first of the second session: the report names the reset before it."""
    outcome = run(TWO_SESSIONS, faults=("stale-mapping-survives-reset",))
    first = outcome.violations[0]
    assert (first.kind, first.step) == ("free-while-mapped", 3)
    assert first.positions == tuple(range(20))


def test_a_skipped_reset_is_seen():
    """Nobody resets between the sessions: the first one's slots stay owned."""
    outcome = run(TWO_SESSIONS, faults=("skip-reset",))
    first = outcome.violations[0]
    assert (first.kind, first.step) == ("live-after-reset", 3)
    assert first.slots == tuple(range(1, 21))
