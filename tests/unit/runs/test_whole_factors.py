"""Factors that change the run as a whole: its cut into chunks, its dtype."""

from dataclasses import replace

import pytest
from msgspec import structs

from swarepro import api
from swarepro.compare.arms import changed_inputs
from swarepro.interventions import FACTORS
from swarepro.options import RunOptions, no_progress
from swarepro.plan import Span, Step
from swarepro.runs.factor_trials import FactorTrials, evidence_options
from swarepro.runs.intervene import _judged, intervene_case
from swarepro.runs.prepare import prepare

UNPATCHED = ("skip-swa-allocation",)


def judged(case, factor, *, faults=(), step=1, trials=4):
    spec = api.find_case(case) if isinstance(case, str) else case
    (found,) = intervene_case(
        spec,
        factors=(factor,),
        step=step,
        trials=trials,
        options=RunOptions(faults=faults),
        progress=no_progress,
    ).factors
    return found


def trials_of(name, factor, *, faults=(), step=1):
    prepared = prepare(
        api.find_case(name),
        evidence_options(RunOptions(faults=faults)),
        copies=0,
        progress=no_progress,
    )
    return FactorTrials(prepared, FACTORS.get(factor), step)


def test_one_chunk_reads_nothing_back_and_stabilises():
    found = judged("anchor-a", "single-shot", faults=UNPATCHED)
    assert found.verdict == "STABILISES"
    assert (found.compared, found.scope) == ("tokens", "start")
    assert "other cuts round differently" in found.caution
    assert found.treatment.points[0].name == "input_ids"


def test_one_chunk_of_a_healthy_run_chooses_the_same_token():
    assert judged("anchor-a", "single-shot").verdict == "NO_EFFECT"


def test_the_treatment_is_one_step_with_all_the_ids():
    bench = trials_of("anchor-a", "single-shot")
    control, treatment = bench.run("control", 0), bench.run("treatment", 0)
    assert ({r.step for r in control.records}, control.step) == ({0, 1}, 1)
    assert ({r.step for r in treatment.records}, treatment.step) == ({0}, 0)
    assert treatment.inputs == control.inputs == {0: bench._prepared.plan.prompts[0]}
    (ids,) = (r for r in treatment.records if r.name == "input_ids")
    assert ids.shape == (len(bench._prepared.plan.prompts[0]),)


def test_a_cut_that_feeds_other_ids_is_refused():
    bench = trials_of("anchor-a", "single-shot")
    short = replace(
        bench.factor,
        steps=lambda plan, step: (Step(index=0, spans=(Span(session=0, start=0, end=66),)),),
    )
    found = _judged(bench._prepared, short, 1, 2)
    assert (found.verdict, found.reason) == (
        "REFUSED",
        "it changes the token ids that session 0 is given",
    )


def test_changed_inputs_names_the_session():
    assert changed_inputs([{0: (1, 2)}], [{0: (1, 2)}]) is None
    assert "session 1" in changed_inputs([{0: (1,), 1: (2,)}], [{0: (1,), 1: (3,)}])
    assert "session 2" in changed_inputs([{0: (1,)}], [{0: (1,), 2: (3,)}])


@pytest.mark.parametrize(
    ("case", "step", "reason"),
    [
        ("anchor-a", 0, "no chunk comes before step 0"),
        ("rows-alias-slot-0", 2, "step 2 decodes a token"),
        ("reset-zeroes-free-list", 1, "several sessions"),
        ("free-unmapped-slots", 1, "has a script"),
    ],
)
def test_where_one_chunk_does_not_apply(case, step, reason):
    found = judged(case, "single-shot", step=step)
    assert found.verdict == "NOT_APPLICABLE"
    assert reason in found.reason


def test_a_pool_with_no_room_for_one_chunk_refuses():
    case = api.find_case("free-unmapped-slots")
    (session, *_) = case.sessions
    one = structs.replace(
        case, sessions=(structs.replace(session, chunks=(64, 16)),), script=(), swa_capacity=76
    )
    found = judged(one, "single-shot")
    assert found.verdict == "REFUSED"
    assert "it ends with an error: the SWA pool needs 80 more slots" in found.reason


def test_fp32_runs_the_same_steps_in_float32():
    bench = trials_of("anchor-a", "fp32")
    control, treatment = bench.run("control", 0), bench.run("treatment", 0)
    assert [(r.step, r.key) for r in treatment.records] == [
        (r.step, r.key) for r in control.records
    ]
    dtypes = [{r.dtype for r in ran.records} for ran in (control, treatment)]
    assert dtypes == [{"I64", "BF16"}, {"I64", "F32"}]


def test_fp32_does_not_mend_what_is_no_rounding():
    found = judged("anchor-a", "fp32", faults=UNPATCHED)
    assert found.verdict == "REJECTED"
    assert found.compared == "tokens"
    assert judged("anchor-a", "fp32").verdict in ("NO_EFFECT", "CHANGES_RESULT")


def test_where_fp32_does_not_apply():
    case = structs.replace(api.find_case("anchor-a"), dtype="fp32")
    found = judged(case, "fp32")
    assert (found.verdict, found.reason) == ("NOT_APPLICABLE", "the run is in fp32 already")
    part = structs.replace(api.find_case("anchor-a"), stages=None, layers="0:4")
    for factor in ("fp32", "single-shot"):
        assert "no stage has the head" in judged(part, factor).reason
