"""A run against a baseline: what it names, where it stops, and what it refuses."""

from dataclasses import replace

import pytest
from msgspec import structs

from swarepro import api
from swarepro.bundle.read import open_bundle
from swarepro.capture import HostDigester
from swarepro.case import PromptSpec, SessionSpec
from swarepro.compare.types import Verdict
from swarepro.errors import CapacityError, IncomparableError, UsageError
from swarepro.options import RunOptions, no_progress
from swarepro.points import Level, PointKind
from swarepro.runs.prepare import prepare
from tests.unit.runs.baselines import (
    BATCHES,
    DIGESTS,
    ONE,
    against,
    baseline_of,
    flipped,
    place,
    prepared,
)


@pytest.fixture(scope="module")
def batches():
    return prepared(BATCHES)


@pytest.fixture(scope="module")
def stored(batches, tmp_path_factory):
    return baseline_of(batches, tmp_path_factory.mktemp("against") / "baseline")


@pytest.mark.parametrize("part", range(8))
def test_one_flipped_digest_is_named_wherever_it_lies(batches, stored, tmp_path, part):
    index = len(stored.records) * part // 8 + part
    record = stored.records[index]
    changed = flipped(stored, tmp_path / "flipped", index)
    found = against(batches, changed, tmp_path / "run")
    first = found.divergence.first
    assert (first.step, first.session, first.name) == place(record)
    assert len(found.divergence.boundaries) == 1
    assert found.divergence.last_identical is None or index > 0
    assert (found.steps_run, found.steps_planned) == (record.step + 1, 5)
    assert place(record) in {place(each) for each in found.stored}
    written = open_bundle(tmp_path / "run")
    assert [step.index for step in written.manifest.steps] == list(range(record.step + 1))
    assert {each.step for each in written.records} == set(range(record.step + 1))
    assert len(written.manifest.final_actions) == (2 if record.step == 4 else 0)
    assert written.verify() == len(found.stored)


def test_control_nothing_flipped_is_found_nowhere(batches, stored, tmp_path):
    found = against(batches, stored, tmp_path / "run")
    assert found.divergence.verdict is Verdict.IDENTICAL
    assert found.divergence.compared == len(stored.records)
    assert (found.stored, found.steps_run, found.in_baseline) == ((), 5, False)
    assert len(open_bundle(tmp_path / "run").manifest.final_actions) == 2


def test_going_on_lists_what_differs_and_stores_the_first_alone(batches, stored, tmp_path):
    middle, last = len(stored.records) // 2, len(stored.records) - 3
    changed = flipped(stored, tmp_path / "flipped", middle, last)
    found = against(batches, changed, tmp_path / "run", go_on=True)
    wanted = [place(stored.records[index]) for index in (middle, last)]
    assert [(b.step, b.session, b.name) for b in found.divergence.boundaries] == wanted
    assert found.steps_run == found.steps_planned == 5
    assert max(each.step for each in found.stored) == stored.records[middle].step
    alone = flipped(stored, tmp_path / "alone", middle)
    assert found.stored == against(batches, alone, tmp_path / "other").stored


class TestCaptures:
    """What the two captures do not share."""

    def test_points_that_the_baseline_lacks_weaken_the_answer(self, tmp_path):
        ready = prepared(ONE)
        thin = baseline_of(prepared(ONE, level=Level.BOUNDARY), tmp_path / "thin")
        index = next(r.index for r in thin.records if (r.step, r.name) == (1, "after_layer_2"))
        found = against(ready, flipped(thin, tmp_path / "a", index), tmp_path / "run")
        divergence = found.divergence
        assert (divergence.first.step, divergence.first.name) == (1, "after_layer_2")
        assert not divergence.exact
        assert {one.name for one in divergence.only_target} > {"L2_o_proj", "L2_mlp_output"}
        # Behind what could not be compared: the layer back to the one before, which is equal.
        names = {each.name for each in found.stored if each.step == 1}
        assert {"after_layer_1", "L2_o_proj", "L2_qkv_projected", "after_layer_2"} < names
        assert "after_layer_0" not in names
        assert not any(name.startswith("L1_") for name in names)
        before = {each.name for each in found.stored if each.step == 0}
        assert before == {"L2_kv_slice_post_write", "full_slots", "swa_slots"}

    def test_a_capture_of_fewer_points_is_compared_as_far_as_it_goes(self, tmp_path):
        full = baseline_of(prepared(ONE), tmp_path / "full")
        ready = prepared(ONE, points=("after_layer_*", "logits"))
        found = against(ready, full, tmp_path / "run")
        assert found.divergence.verdict is Verdict.IDENTICAL
        assert found.divergence.compared == 4 * 7
        assert not found.divergence.exact

    def test_one_step_alone(self, tmp_path):
        full = baseline_of(prepared(ONE), tmp_path / "full")
        found = against(prepared(ONE, steps=(1,)), full, tmp_path / "run")
        assert found.divergence.verdict is Verdict.IDENTICAL
        one = sum(record.step == 1 for record in full.records)
        assert found.divergence.compared == one
        index = next(r.index for r in full.records if (r.step, r.name) == (1, "L0_o_proj"))
        changed = flipped(full, tmp_path / "flipped", index)
        found = against(prepared(ONE, steps=(1,)), changed, tmp_path / "other")
        assert [place(each) for each in found.stored] == [
            (1, 0, "L0_attention_output"),
            (1, 0, "L0_o_proj"),
        ]

    def test_nothing_in_common_is_refused_before_anything_runs(self, tmp_path):
        thin = baseline_of(prepared(ONE, points=("L0_*",)), tmp_path / "thin")
        with pytest.raises(IncomparableError, match="none of the 24 boundaries") as refused:
            against(prepared(ONE, points=("after_layer_*",)), thin, tmp_path / "run")
        assert "level op" not in refused.value.message
        assert "--points" in refused.value.hint
        assert not (tmp_path / "run").exists()


class TestLengths:
    """Runs of which one begins as the other does."""

    @pytest.fixture
    def shorter(self, tmp_path):
        session = structs.replace(ONE.sessions[0], decode=0)
        return structs.replace(ONE, sessions=(session,))

    def test_a_run_ends_with_the_last_step_of_its_baseline(self, shorter, tmp_path):
        stored = baseline_of(prepared(shorter), tmp_path / "base")
        found = against(prepared(ONE), stored, tmp_path / "run")
        assert (found.steps_run, found.steps_planned, found.steps_baseline) == (2, 4, 2)
        assert found.divergence.verdict is Verdict.IDENTICAL
        assert len(open_bundle(tmp_path / "run").manifest.steps) == 2

    def test_unless_it_goes_on(self, shorter, tmp_path):
        stored = baseline_of(prepared(shorter), tmp_path / "base")
        found = against(prepared(ONE), stored, tmp_path / "run", go_on=True)
        assert (found.steps_run, found.divergence.last_step) == (4, 1)
        assert found.divergence.only_target == ()

    def test_a_shorter_run_is_compared_as_far_as_it_goes(self, shorter, tmp_path):
        stored = baseline_of(prepared(ONE), tmp_path / "base")
        found = against(prepared(shorter), stored, tmp_path / "run")
        assert found.divergence.verdict is Verdict.IDENTICAL
        assert found.divergence.last_step == 1

    def test_the_baseline_run_again_against_a_stopped_run_stores_the_other_side(self, tmp_path):
        faults = RunOptions(faults=("skip-swa-allocation",))
        (tmp_path / "out").mkdir()
        racing = [replace(prepared(ONE), schedule=f"seeded:{n}") for n in (1, 2)]
        racing = [
            replace(each, options=replace(each.options, faults=faults.faults)) for each in racing
        ]
        stored = baseline_of(racing[0], tmp_path / "base")
        one = against(racing[1], stored, tmp_path / "one")
        assert not one.in_baseline
        assert one.divergence.first.numbers is None
        stopped = open_bundle(tmp_path / "one")
        other = against(racing[0], stopped, tmp_path / "other")
        assert other.in_baseline
        assert [place(each) for each in other.stored] == [place(each) for each in one.stored]
        assert other.divergence.first.numbers.num_mismatched > 0
        both = api.diff_runs(tmp_path / "other", tmp_path / "one")
        assert both.first.name == one.divergence.first.name
        assert both.first.numbers.num_mismatched > 0


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"dtype": "fp32"}, "need a tolerance: dtype bf16 against fp32"),
            ({"model": "synthetic:gemma4-tiny?layers=4"}, "a model of 6 layers, this run of one"),
            (
                {"sessions": (SessionSpec(prompt=PromptSpec(random=40, seed=3), chunk=20),)},
                "has other steps than this run, first at step 0",
            ),
            (
                {"sessions": (SessionSpec(prompt=PromptSpec(random=40, seed=4), chunk=32),)},
                "session 0 has other token ids",
            ),
            (
                {"sessions": (SessionSpec(prompt=PromptSpec(random=33, seed=3), chunk=32),)},
                "session 0 has 40 tokens against 33",
            ),
            ({"sessions": (*ONE.sessions, *ONE.sessions)}, "of 1 sessions against 2"),
        ],
    )
    def test_what_cannot_be_compared_by_digest(self, changes, message, tmp_path):
        stored = baseline_of(prepared(ONE), tmp_path / "base")
        with pytest.raises(IncomparableError, match=message) as refused:
            against(prepared(structs.replace(ONE, **changes)), stored, tmp_path / "run")
        assert refused.value.hint
        assert not (tmp_path / "run").exists()

    def test_another_route(self, tmp_path):
        stored = baseline_of(prepared(ONE), tmp_path / "base")
        options = replace(DIGESTS, route="eager-paged")
        other = prepare(ONE, options, copies=0, progress=no_progress)
        with pytest.raises(IncomparableError, match="route eager against eager-paged"):
            against(other, stored, tmp_path / "run")

    @pytest.mark.parametrize("engine", ["dense", "dense-fp64"])
    def test_another_engine(self, engine, tmp_path):
        options = replace(DIGESTS, engine=engine)
        ready = prepare(ONE, options, copies=0, progress=no_progress)
        baseline_of(ready, tmp_path / "dense")
        with pytest.raises(IncomparableError, match=f"engine {engine} against paged"):
            api.run_against(ONE, tmp_path / "dense", out=tmp_path, run_id="a", options=DIGESTS)
        with pytest.raises(UsageError, match=f"not on the engine {engine}"):
            api.run_against(ONE, tmp_path / "dense", out=tmp_path, run_id="a", options=options)
        assert not (tmp_path / "a").exists()

    def test_digests_of_another_kind(self, tmp_path, monkeypatch):
        stored = baseline_of(prepared(ONE), tmp_path / "base")
        monkeypatch.setattr(HostDigester, "algorithm", "swd_128")
        with pytest.raises(IncomparableError, match="xxh3_128 digests, and this run computes swd"):
            against(prepared(ONE), stored, tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_a_run_that_ends_with_an_error_says_where_it_had_parted(self, tmp_path):
        """Its first step differs; a later one finds no room."""
        case = structs.replace(ONE, swa_capacity=32)
        roomy = baseline_of(prepared(ONE), tmp_path / "roomy")
        changed = flipped(roomy, tmp_path / "flipped", 20)
        with pytest.raises(CapacityError) as refused:
            against(prepared(case), changed, tmp_path / "run", go_on=True)
        name = roomy.records[20].name
        assert f"had parted from the baseline at step 0, {name}" in refused.value.hint
        assert not (tmp_path / "run").exists()
        found = against(prepared(case), changed, tmp_path / "stopped")
        assert found.divergence.first.name == name

    def test_control_without_a_mismatch_the_error_says_nothing_of_one(self, tmp_path):
        roomy = baseline_of(prepared(ONE), tmp_path / "roomy")
        with pytest.raises(CapacityError) as refused:
            against(prepared(structs.replace(ONE, swa_capacity=32)), roomy, tmp_path / "run")
        assert "parted" not in (refused.value.hint or "")


def test_slots_that_differ_are_found_first_and_points_leave_them_out(tmp_path):
    """Pages of another size give other slots to the same positions, and the same values."""
    paged = structs.replace(ONE, page_size=4)
    found = against(prepared(paged), baseline_of(prepared(ONE), tmp_path / "a"), tmp_path / "b")
    first = found.divergence.first
    assert (first.name, first.kind) == ("full_slots", PointKind.METADATA)
    globs = ("L*", "after_layer_*", "logits")
    stored = baseline_of(prepared(ONE, points=globs), tmp_path / "c")
    found = against(prepared(paged, points=globs), stored, tmp_path / "d")
    assert found.divergence.verdict is Verdict.IDENTICAL


def test_the_digests_are_those_of_a_run_without_a_witness(batches, stored, tmp_path):
    against(batches, stored, tmp_path / "run")
    assert open_bundle(tmp_path / "run").records == stored.records
