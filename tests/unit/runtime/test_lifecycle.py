"""The lifecycle inside the runtime: every role, every chunking, every reset."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from swarepro.backend import Backend
from swarepro.build import execute, load_model
from swarepro.bundle.schema import CaptureEntry
from swarepro.capture import MemorySink
from swarepro.case import CaseSpec, PromptSpec, SessionSpec
from swarepro.checkpoint import open_checkpoint
from swarepro.errors import CapacityError, PositionGapError
from swarepro.kvcache import HybridKVCache, KVGroup, OwnershipCheck, SwaSession
from swarepro.plan import Phase, RunPlan, Span, Step, plan_stages
from swarepro.points import Level
from swarepro.runs.prepare import plan_case
from swarepro.runtime.groups import stage_groups

CHECKPOINT = open_checkpoint("synthetic:gemma4-tiny?layers=6")
CAPACITY = 48
OFF = CaptureEntry(level=Level.OFF, store="digest", points=("*",), layers=(), steps=())


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
    model = load_model(CHECKPOINT, plan, dtype="fp32", backend=Backend(device="cpu", triton="off"))
    return execute(
        plan,
        model,
        capture=OFF,
        sink=MemorySink([]),
        faults=faults,
        schedule="program",
        route="eager",
        on_step=on_step,
    )


@settings(max_examples=15)
@given(sessions=sessions(), stages=st.sampled_from([None, "0:2,2:4,4:6", "0:5,5:6"]))
def test_random_sessions_own_distinct_slots_and_the_books_balance(sessions, stages):
    outcome = run(sessions, stages=stages)
    positions = sum(sessions[-1].chunks) + sessions[-1].decode
    reports = [report for report in outcome.ownership if report is not None]
    assert reports
    for report in reports:
        assert report.violations == ()
        assert report.free + len(set(report.owned)) == report.capacity == CAPACITY
        assert report.positions == report.live == positions
        assert report.owned == tuple(range(1, positions + 1))  # whatever the chunking was


@settings(max_examples=10)
@given(sessions=sessions())
def test_the_same_runs_without_allocation_are_caught(sessions):
    outcome = run(sessions, faults=("skip-swa-allocation",))
    (report,) = outcome.ownership
    assert report.violations[0].kind == "sentinel-store"
    assert report.violations[0].step == 0


def test_a_stage_of_full_layers_alone_has_no_report():
    outcome = run((SessionSpec(prompt=PromptSpec(random=9), chunk=4),), stages="0:5,5:6")
    assert outcome.ownership[0] is not None
    assert outcome.ownership[1] is None


def gapped_plan() -> RunPlan:
    """Step 1 begins two positions beyond the end of step 0."""
    case = CaseSpec(
        name="x",
        model="x",
        sessions=(SessionSpec(prompt=PromptSpec(random=12), chunks=(4, 8)),),
        capacity=CAPACITY,
    )
    plan = plan_case(case, CHECKPOINT)
    late = Step(index=1, phase=Phase.PREFILL, spans=(Span(session=0, start=6, end=12),))
    return RunPlan(
        prompts=plan.prompts,
        steps=(plan.steps[0], late),
        stages=plan.stages,
        capacity=plan.capacity,
        swa_capacity=plan.swa_capacity,
    )


def test_a_position_gap_is_refused_before_the_step_runs():
    done = []
    with pytest.raises(PositionGapError, match="begins at position 6"):
        run_plan(gapped_plan(), on_step=done.append)
    assert [step.index for step in done] == [0]


def test_without_allocation_a_gap_goes_unseen():
    """The control: the defect's runtime runs on over positions that were never computed."""
    done = []
    run_plan(gapped_plan(), faults=("skip-swa-allocation",), on_step=done.append)
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
    with pytest.raises(CapacityError, match="needs 4 more slots and has 0 free of 16"):
        run_plan(plan_case(case, CHECKPOINT), on_step=done.append)
    assert [step.index for step in done] == [0, 1]


def test_a_pool_has_one_slot_more_than_its_capacity():
    cache = HybridKVCache(
        stage_groups(CHECKPOINT.config, plan_stages(stages=None, layers=None, num_layers=6)[0]),
        capacity=8,
        swa_capacity=5,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    assert cache.pools[KVGroup.FULL].kv.shape[1] == 9
    assert cache.pools[KVGroup.SLIDING].kv.shape[1] == 6


TWO_SESSIONS = (
    SessionSpec(prompt=PromptSpec(random=20, seed=1), chunk=8),
    SessionSpec(prompt=PromptSpec(random=9, seed=2), chunk=8),
)


def test_a_stale_mapping_is_seen_at_the_reset():
    """Step 3 is the first of the second session: the report names the reset before it."""
    outcome = run(TWO_SESSIONS, faults=("stale-mapping-survives-reset",))
    (report,) = outcome.ownership
    assert [(v.kind, v.step) for v in report.violations] == [("free-while-mapped", 3)]
    assert report.violations[0].positions == tuple(range(20))


def test_a_skipped_reset_is_seen():
    """Nobody resets between the sessions: positions restart below a frontier that stayed."""

    class KeepsEverything(SwaSession):
        def reset(self) -> None:
            pass

    owner = KeepsEverything(full_slots=torch.arange(1, 31), swa_capacity=30)
    check = OwnershipCheck()
    owner.ensure(0, 20)
    check.after_store(0, 0, owner.translate(owner.full_slots[:20]), owner)
    assert check.report(owner).violations == ()
    owner.reset()
    check.after_reset(1, owner)
    (violation,) = check.report(owner).violations
    assert violation.kind == "live-after-reset"
    assert violation.slots == tuple(range(1, 21))
