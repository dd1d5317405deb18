"""Interventions: one variable, an unchanged control, the same state."""

from dataclasses import replace

import pytest

from swarepro import api
from swarepro.capture import MemorySink
from swarepro.errors import CapacityError, UsageError
from swarepro.interventions import FACTORS, Factor, Means, Ran, Scope
from swarepro.interventions.base import always
from swarepro.kvcache import KVPool
from swarepro.options import CaptureOptions, RunOptions, no_progress
from swarepro.runs.intervene import intervene_case
from swarepro.runs.once import execution, run_in_memory
from swarepro.runs.prepare import prepare
from swarepro.runtime.parts import ScratchUse
from swarepro.runtime.schedule import parse_schedule

UNPATCHED = RunOptions(faults=("skip-swa-allocation",))
ALL = FACTORS.names()
REAL = ("alloc-swa", "sync-before-attention", "alternate-route", "program-order")


def verdicts(name, options, *, factors=REAL, step=None, trials=6):
    found = intervene_case(
        api.find_case(name),
        factors=factors,
        step=step,
        trials=trials,
        options=options,
        progress=no_progress,
    )
    return {each.factor: each for each in found.factors}


@pytest.mark.parametrize("name", ["anchor-a", "anchor-b"])
def test_the_third_table_of_the_founding_defect(name):
    found = verdicts(name, UNPATCHED)
    assert {factor: each.verdict for factor, each in found.items()} == {
        "alloc-swa": "STABILISES",
        "sync-before-attention": "REJECTED",
        "alternate-route": "REJECTED",
        "program-order": "STABILISES",
    }
    cause = found["alloc-swa"]
    assert cause.control.first_value_varying.name == "L0_attention_output"
    assert cause.control.first_value_varying.distinct > 1
    assert cause.treatment.earliest_varying is None


def test_trials_alternate_and_share_their_schedules():
    (found,) = verdicts(
        "anchor-a", UNPATCHED, factors=("sync-before-attention",), trials=4
    ).values()
    assert [each.arm[0] for each in found.trials] == list("cttccttc")
    assert [each.order for each in found.trials] == list(range(8))
    control = [each.schedule for each in found.trials if each.arm == "control"]
    assert control == [f"seeded:{index}" for index in range(4)]
    assert control == [each.schedule for each in found.trials if each.arm == "treatment"]


def test_without_a_defect_nothing_has_an_effect():
    found = verdicts("anchor-a", RunOptions())
    assert {x.verdict for name, x in found.items() if name != "alternate-route"} == {"NO_EFFECT"}
    rounding = ("NO_EFFECT", "CHANGES_RESULT")  # keys are added up in another order
    assert found["alternate-route"].verdict in rounding


def test_one_row_is_stable_and_allocation_changes_it():
    found = verdicts("one-row", UNPATCHED)
    assert found["alloc-swa"].verdict == "CHANGES_RESULT"
    assert found["program-order"].verdict == "NO_EFFECT"


def assert_same_slots(run, wanted):
    """The parts alone remember that they are others: a fault, and a treatment around it."""
    mine, theirs = run.state(), wanted.state()
    assert {name for name in mine if mine[name] != theirs[name]} == {"what the parts remember"}
    assert mine.keys() == theirs.keys()


def test_allocating_gives_the_patched_mapping_and_bytes():
    case = api.find_case("anchor-a")
    patched = prepare(case, RunOptions(), copies=0, progress=no_progress)
    wanted, outcome = run_in_memory(patched, schedule="program", on_step=lambda step: None)
    run = execution(replace(patched, options=UNPATCHED), sink := MemorySink([]), schedule="program")
    run.wrap(FACTORS.get("alloc-swa").wrap(Means(other_attention=None, synchronize=None)))
    run.run_steps(slice(None))
    assert [r.digest for r in sink.records] == [r.digest for r in wanted]
    assert run.outcome.tokens == outcome.tokens
    healthy = execution(patched, MemorySink([]), schedule="program")
    healthy.run_steps(slice(None))
    assert_same_slots(run, healthy)


@pytest.fixture
def factor():
    """Register factors for one test."""
    before = FACTORS.names()

    def register(new: Factor) -> str:
        FACTORS.register(new.name, new)
        return new.name

    yield register
    for name in set(FACTORS.names()) - set(before):
        del FACTORS._items[name]


def test_a_factor_that_changes_an_earlier_step_is_refused(factor):
    """From the first step on, the other route makes chunk 0 wrong: that is another experiment."""
    route = FACTORS.get("alternate-route")
    name = factor(replace(route, name="route-from-start", scope=Scope.START))
    (found,) = verdicts("anchor-a", UNPATCHED, factors=(name,), trials=2).values()
    assert found.verdict == "REFUSED"
    assert "changes boundary_send_hidden of stage 0 of step 0, session 0" in found.reason
    assert found.control is found.treatment is None


def test_a_factor_that_changes_model_inputs_is_refused(factor):
    from swarepro.runtime.wrappers import on_metadata

    shifted = Factor(
        name="shifted",
        summary="positions are others",
        part="metadata",
        scope=Scope.TARGET,
        wrap=lambda means: on_metadata(lambda span, window_left: span.start + 1),
    )
    (found,) = verdicts("anchor-a", UNPATCHED, factors=(factor(shifted),), trials=2).values()
    assert found.verdict == "REFUSED"
    assert "changes positions of stage 0 of step 1" in found.reason


def test_a_factor_that_does_not_apply_is_not_run(factor):
    never = Factor(
        name="never",
        summary="of no use",
        part="scratch",
        scope=Scope.TARGET,
        applies=lambda ran: f"it ran {', '.join(sorted(ran.routes))}",
    )
    (found,) = verdicts("anchor-a", UNPATCHED, factors=(factor(never),), trials=2).values()
    assert (found.verdict, found.reason) == ("NOT_APPLICABLE", "it ran eager-prefill")
    assert found.trials == ()


def test_a_factor_that_makes_a_step_vary_destabilises(factor):
    """The control: one that is no treatment at all."""
    from swarepro.faults import FAULTS

    worse = Factor(
        name="worse",
        summary="every row goes to slot 0",
        part="allocator",
        scope=Scope.START,
        wrap=lambda means: FAULTS.get("swa-rows-alias-slot-0").wrap,
    )
    (found,) = verdicts("anchor-a", RunOptions(), factors=(factor(worse),)).values()
    assert found.verdict == "DESTABILISES"


def test_when_the_shipped_factors_apply():
    prepared = prepare(api.find_case("anchor-a"), RunOptions(), copies=0, progress=no_progress)
    ran = Ran(
        device="cpu",
        dtype="bf16",
        plan=prepared.plan,
        step=1,
        scripted=False,
        routes=frozenset(("eager-prefill",)),
        scratch=frozenset((ScratchUse.OUTPUT,)),
        has_sliding=False,
        schedule="hardware",
    )
    assert "eager-prefill does without" in FACTORS.get("zero-scratch").applies(ran)
    assert "no SWA pool" in FACTORS.get("alloc-swa").applies(ran)
    assert "cannot be fixed" in FACTORS.get("program-order").applies(ran)
    here = replace(ran, has_sliding=True, schedule="seeded:0")
    assert all(FACTORS.get(name).applies(here) is None for name in REAL)
    assert always(ran) is None


def test_unwritten_scratch_is_another_cause_with_another_treatment():
    """The second mechanism: the ladder is not built around one answer."""
    options = RunOptions(faults=("unwritten-scratch",))
    case = api.find_case("unwritten-scratch")
    found = {
        each.factor: each
        for each in intervene_case(
            case, factors=ALL, step=2, trials=6, options=options, progress=no_progress
        ).factors
    }
    assert {name: each.verdict for name, each in found.items()} == {
        "alloc-swa": "REJECTED",
        "sync-before-attention": "REJECTED",
        "alternate-route": "STABILISES",  # it has no partial results
        "program-order": "STABILISES",
        "zero-scratch": "STABILISES",
        "poison-scratch": "STABILISES",
        "single-shot": "NOT_APPLICABLE",
        "fp32": "REJECTED",
    }
    assert found["zero-scratch"].control.first_value_varying.name == "L0_attention_output"


def test_scratch_factors_apply_to_a_decoded_token_alone():
    """A chunk has no partial results: refused, not passed."""
    for name in ("zero-scratch", "poison-scratch"):
        (found,) = verdicts("anchor-a", UNPATCHED, factors=(name,)).values()
        assert found.verdict == "NOT_APPLICABLE"
        assert "takes no memory for partial results" in found.reason
        assert found.trials == ()
        (found,) = verdicts(
            "rows-alias-slot-0", RunOptions(), factors=(name,), step=2, trials=2
        ).values()
        assert found.verdict == "NO_EFFECT"


def test_the_shadow_sees_the_cause_in_the_control_alone():
    case = api.find_case("anchor-a")
    prepared = prepare(case, UNPATCHED, copies=0, progress=no_progress)
    for treated in (False, True):
        run = execution(prepared, MemorySink([]), schedule="program")
        if treated:
            run.wrap(FACTORS.get("alloc-swa").wrap(Means(other_attention=None, synchronize=None)))
        run.run_steps(slice(None))
        assert (run.outcome.violations == ()) is treated


def test_a_restore_that_does_nothing_is_caught(monkeypatch):
    monkeypatch.setattr(KVPool, "restore", lambda self, kv: 0)
    with pytest.raises(RuntimeError, match="before trial 0 of the control of sync"):
        verdicts("anchor-a", UNPATCHED, factors=("sync-before-attention",))


@pytest.mark.parametrize(
    ("name", "step", "verdict"),
    [
        ("free-unmapped-slots", 3, "NO_EFFECT"),
        ("free-unmapped-slots", 4, "REJECTED"),
    ],
)
def test_slots_are_allocated_by_whole_pages(name, step, verdict):
    """Of page 0, when that is handed out, one slot reads as unmapped and three do not."""
    case = api.find_case(name)
    found = verdicts(name, RunOptions(faults=(case.fault,)), factors=("alloc-swa",), step=step)
    assert found["alloc-swa"].verdict == verdict


def test_allocating_evicts_what_the_defect_does_not():
    """Without eviction the SWA pool, of 104 slots, has no room for the last chunk."""
    case = api.find_case("free-unmapped-slots")
    patched = prepare(case, RunOptions(), copies=0, progress=no_progress)
    wanted = execution(patched, sink := MemorySink([]), schedule="program")
    wanted.run_steps(slice(None))
    run = execution(
        replace(patched, options=UNPATCHED), treated := MemorySink([]), schedule="program"
    )
    run.wrap(FACTORS.get("alloc-swa").wrap(Means(other_attention=None, synchronize=None)))
    run.run_steps(slice(None))
    assert [r.digest for r in treated.records] == [r.digest for r in sink.records]
    assert_same_slots(run, wanted)


def test_an_error_of_a_treatment_refuses_that_factor_alone():
    """Every page is page 0 after the reset; allocating for all needs more than the list has."""
    options = RunOptions(faults=("reset-zeroes-free-list",))
    found = verdicts("reset-zeroes-free-list", options, trials=2)
    assert found["alloc-swa"].verdict == "REFUSED"
    assert found["alloc-swa"].reason.startswith("it ends with an error: 53 pages are needed")
    assert found["alloc-swa"].control is None
    assert found["program-order"].verdict == "STABILISES"


def test_an_error_of_the_control_is_the_commands():
    with pytest.raises(CapacityError, match="the SWA pool needs 30 more slots"):
        verdicts("exhaustion", RunOptions(), trials=2)


def test_the_other_route_follows_the_trials_schedule():
    schedules = []

    def attention(schedule):
        schedules.append(schedule)
        return prepared.route

    prepared = prepare(api.find_case("anchor-a"), RunOptions(), copies=0, progress=no_progress)
    run = execution(prepared, MemorySink([]), schedule="program")
    run.wrap(
        FACTORS.get("alternate-route").wrap(Means(other_attention=attention, synchronize=None))
    )
    for name in ("seeded:3", "program", "seeded:4"):
        run.use(name, MemorySink([]))
        found, wanted = (each.order(9, 1) for each in (schedules[0], parse_schedule(name)))
        assert (found is wanted is None) or found.tolist() == wanted.tolist()
    assert len({id(schedule) for schedule in schedules}) == 1


def test_a_factor_that_is_named_twice_is_tried_once():
    twice = ("program-order", "alloc-swa", "program-order")
    assert list(verdicts("anchor-a", UNPATCHED, factors=twice, trials=2)) == list(twice[:2])
    found = intervene_case(
        api.find_case("anchor-a"),
        factors=twice,
        step=1,
        trials=2,
        options=UNPATCHED,
        progress=no_progress,
    )
    assert len(found.factors) == 2


def test_waiting_on_the_cpu_says_that_it_changes_nothing():
    found = verdicts("anchor-a", UNPATCHED, factors=("sync-before-attention",), trials=2)
    assert (
        "on the CPU all work is done when a call returns" in found["sync-before-attention"].caution
    )


def test_refusals():
    with pytest.raises(UsageError, match="'alloc-sva'") as caught:
        verdicts("anchor-a", UNPATCHED, factors=("alloc-sva",))
    assert caught.value.hint == "did you mean 'alloc-swa'?"
    with pytest.raises(UsageError, match="step 2 is not one of them"):
        verdicts("anchor-a", UNPATCHED, step=2)
    with pytest.raises(UsageError, match="1 trials cannot vary"):
        verdicts("anchor-a", UNPATCHED, trials=1)


def test_outputs_that_vary_before_the_step_make_it_invalid():
    case = api.find_case("rows-alias-slot-0")
    options = RunOptions(faults=("swa-rows-alias-slot-0",))
    found = intervene_case(
        case, factors=REAL, step=2, trials=3, options=options, progress=no_progress
    )
    assert (found.step, found.factors) == (2, ())
    assert [(x.step, x.session, x.name) for x in found.varying_outputs] == [(1, 0, "logits")]
    narrow = replace(options, capture=CaptureOptions(steps=(2,), points=("token",)))
    again = intervene_case(
        case, factors=REAL, step=2, trials=3, options=narrow, progress=no_progress
    )
    assert again.varying_outputs == found.varying_outputs
