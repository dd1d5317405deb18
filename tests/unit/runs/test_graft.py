"""Grafts: another run's tensor in the place of one boundary."""

from dataclasses import replace

import pytest
import torch
from msgspec import structs

from swarepro import api, points
from swarepro.capture import MemorySink
from swarepro.errors import BundleError, UsageError
from swarepro.interventions.grafting import GraftTap
from swarepro.options import CaptureOptions, RunOptions, no_progress
from swarepro.points import Scope
from swarepro.runs.factor_trials import FactorTrials, evidence_options
from swarepro.runs.graft import read_graft, why_no_graft
from swarepro.runs.intervene import intervene_case
from swarepro.runs.once import execution
from swarepro.runs.prepare import prepare
from swarepro.runtime.wrappers import on_tap

UNPATCHED = RunOptions(faults=("skip-swa-allocation",))
CASE = structs.replace(api.find_case("anchor-a"), stages=None)
ONE_LAYER = structs.replace(CASE, layers="0:1")


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """Bundles of the healthy run, of all layers and of layer 0 alone, and of another cut."""
    out = tmp_path_factory.mktemp("runs")
    other = structs.replace(
        CASE, sessions=(structs.replace(CASE.sessions[0], chunks=(60, *_rest(60))),)
    )
    wide = structs.replace(CASE, dtype="fp32")
    digest = RunOptions(capture=CaptureOptions(store="digest"))
    for name, case, options in (
        ("all", CASE, RunOptions()),
        ("one", ONE_LAYER, RunOptions()),
        ("cut", other, RunOptions()),
        ("wide", wide, RunOptions()),
        ("digest", CASE, digest),
        ("few", CASE, RunOptions(capture=CaptureOptions(points=("logits",)))),
    ):
        api.run_case(case, out=out, run_id=name, options=options)
    return out


def _rest(first):
    total = sum(CASE.sessions[0].chunks)
    return (total - first,)


def prepared_for(case, options):
    return prepare(case, evidence_options(options), copies=0, progress=no_progress)


def treated(case, options, name, step=1):
    prepared = prepared_for(case, options)
    return FactorTrials(prepared, read_graft(name, prepared, step), step).run("treatment", 0)


def healthy(case):
    prepared = prepared_for(case, RunOptions())
    run = execution(prepared, sink := MemorySink([]), schedule="program")
    run.run_steps(slice(None))
    return {r.name: r for r in sink.records if r.step == 1}


@pytest.mark.parametrize(
    ("case", "bundle", "boundary"),
    [(ONE_LAYER, "one", "L0_attention_output"), (CASE, "all", "after_layer_10")],
)
def test_a_healthy_tensor_makes_all_that_follows_healthy(bundles, case, bundle, boundary):
    wanted = healthy(case)
    ran = treated(case, UNPATCHED, f"graft:{boundary}={bundles / bundle}")
    names = [record.name for record in ran.records]
    at = names.index(boundary)
    values = [r for r in ran.records[at:] if r.kind is points.PointKind.VALUE]
    assert len(values) > 5
    assert [r.digest for r in values] == [wanted[r.name].digest for r in values]
    before = ran.records[at - 1]
    assert before.digest != wanted[before.name].digest


def test_a_runs_own_tensor_has_no_effect(bundles):
    (found,) = intervene_case(
        CASE,
        factors=(f"graft:L0_attention_output={bundles / 'all'}",),
        step=1,
        trials=2,
        options=RunOptions(),
        progress=no_progress,
    ).factors
    assert (found.verdict, found.compared) == ("NO_EFFECT", "bytes")


def test_a_graft_of_the_healthy_boundary_stabilises(bundles):
    (found,) = intervene_case(
        ONE_LAYER,
        factors=(f"graft:L0_attention_output={bundles / 'one'}",),
        step=1,
        trials=4,
        options=UNPATCHED,
        progress=no_progress,
    ).factors
    assert found.verdict == "STABILISES"
    assert found.factor.startswith("graft:L0_attention_output=")


def live(point):
    """Say whether the run goes on with what is put into ``point`` at step 1."""
    case = structs.replace(api.find_case("anchor-a"), stages="0:4,4:12")
    prepared = prepared_for(case, RunOptions())
    layer = 6 if point.scope is Scope.LAYER else None
    zeros = {0: torch.tensor(0)}
    shown = []
    for graft in (False, True):
        run = execution(prepared, sink := MemorySink([]), schedule="program")
        run.run_steps(slice(0, 1))
        if graft:
            run.wrap(on_tap(lambda inner: GraftTap(inner, point, layer, zeros)))
        run.run_steps(slice(1, 2))
        tail = [r.digest for r in sink.records if r.step == 1 and r.name in ("logits", "token")]
        shown.append(tail)
    return shown[0] != shown[1]


VALUES = [point for point in points.ALL if point.kind is not points.PointKind.METADATA]


@pytest.mark.parametrize("point", VALUES, ids=lambda point: point.name)
def test_points_that_can_be_grafted_are_those_that_the_run_goes_on_with(point):
    assert live(point) is (why_no_graft(point) is None)


def test_logits_choose_the_token():
    prepared = prepared_for(CASE, RunOptions())
    run = execution(prepared, MemorySink([]), schedule="program")
    wanted = torch.zeros(1, prepared.model.config.vocab_size)
    wanted[0, 7] = 1
    run.wrap(on_tap(lambda inner: GraftTap(inner, points.LOGITS, None, {0: wanted})))
    run.run_steps(slice(None))
    assert run.outcome.tokens == ((7,),)


@pytest.mark.parametrize(
    ("graft", "said"),
    [
        ("positions={all}", "positions cannot be grafted: it is no value"),
        ("L0_kv_slice_post_write={all}", "a copy of the pool's rows"),
        ("L0_rotary_applied={all}", "q and k joined"),
        ("token={all}", "graft those"),
        ("L0_attention_outptu={all}", "step 1 has no boundary 'L0_attention_outptu'"),
        ("L0_o_proj={digest}", "has of L0_o_proj at step 1 a digest only"),
        ("L0_o_proj={few}", "has no L0_o_proj of step 1, session 0"),
        ("L0_o_proj={cut}", "from position 60"),
        ("L0_o_proj={wide}", "is F32 ["),
        ("L0_o_proj", "names no boundary and bundle"),
    ],
)
def test_refusals(bundles, graft, said):
    name = "graft:" + graft.format(**{p.name: p for p in bundles.iterdir()})
    with pytest.raises(UsageError) as caught:
        treated(CASE, RunOptions(), name)
    assert said in caught.value.message
    if "digest only" in said:
        assert caught.value.hint == "run it again with --store tensor"


def test_a_bundle_that_is_not_there(tmp_path):
    with pytest.raises(BundleError, match="no bundle"):
        treated(CASE, RunOptions(), f"graft:logits={tmp_path / 'none'}")


def test_a_name_that_is_wrong_is_refused_before_weights_are_loaded():
    missing = structs.replace(CASE, model="synthetic:none")
    with pytest.raises(UsageError, match="names no boundary and bundle"):
        intervene_case(
            missing,
            factors=("graft:logits",),
            step=1,
            trials=2,
            options=replace(UNPATCHED),
            progress=no_progress,
        )


@pytest.mark.parametrize(
    ("change", "said"),
    [({"seed": 2}, "other prompts"), ({"model": "synthetic:gemma4-tiny?seed=7"}, "other model")],
)
def test_a_tensor_of_something_else_is_refused(tmp_path, change, said):
    """Of the same shape, from the same place: only what was computed is another thing."""
    model = change.get("model", CASE.model)
    prompt = structs.replace(CASE.sessions[0].prompt, seed=change.get("seed", 1))
    other = structs.replace(
        CASE, model=model, sessions=(structs.replace(CASE.sessions[0], prompt=prompt),)
    )
    api.run_case(other, out=tmp_path, run_id="other")
    with pytest.raises(UsageError, match=said):
        read_graft(f"graft:L0_o_proj={tmp_path / 'other'}", prepared_for(CASE, RunOptions()), 1)
