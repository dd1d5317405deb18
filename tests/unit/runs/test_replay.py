"""Replay: every trial begins with the same state, and that is proved."""

import msgspec
import pytest
import torch

from swarepro import api
from swarepro.capture import MemorySink
from swarepro.case import convert_case
from swarepro.errors import IncomparableError, UsageError
from swarepro.kvcache import KVPool
from swarepro.options import RunOptions, no_progress
from swarepro.runs.once import execution, run_in_memory
from swarepro.runs.prefix import prefix_run
from swarepro.runs.prepare import prepare
from swarepro.runs.replay import replay_case
from swarepro.runs.step_trials import StepTrials

UNPATCHED = RunOptions(faults=("skip-swa-allocation",))
SCRIPT = {
    "name": "pair",
    "model": "synthetic:gemma4-tiny?layers=6",
    "capacity": 96,
    "page_size": 4,
    "evict": True,
    "script": [
        {"rows": [{"session": 0, "prefill": 40}]},
        {"rows": [{"session": 0, "decode": True}, {"session": 1, "prefill": 9}]},
        {"finish": [0], "keep": True},
        {"reuse": {"session": 2, "of": 0, "rows": 40}},
        {"rows": [{"session": 2, "prefill": 3}, {"session": 1, "decode": True}]},
        {"rows": [{"session": 2, "decode": True}], "times": 2},
    ],
    "sessions": [
        {"prompt": {"random": 40, "seed": 1}},
        {"prompt": {"random": 9, "seed": 2}},
        {"prompt": {"random": 43, "seed": 1}},
    ],
}


def replay(case, step, options=None, trials=6):
    return replay_case(
        case, step=step, trials=trials, options=options or RunOptions(), progress=no_progress
    )


def named(boundary):
    return boundary and (boundary.step, boundary.name)


@pytest.mark.parametrize("name", ["anchor-a", "anchor-b"])
def test_the_second_table_of_the_founding_defect(name):
    """From one state after chunk 0, all that leads to the store is the same in every trial."""
    found = replay(api.find_case(name), 1, UNPATCHED).determinism
    assert named(found.earliest_varying) == (1, "L0_kv_slice_post_write")
    assert named(found.first_value_varying) == (1, "L0_attention_output")
    distinct = {point.name: point.distinct for point in found.points}
    steady = ("qkv_projected", "q_normed", "k_normed", "rotary_applied", "kv_slice_pre_write")
    assert {distinct[f"L0_{point}"] for point in steady} == {1}
    assert {distinct[point] for point in ("positions", "full_slots", "swa_slots", "route")} == {1}
    for point in ("L0_attention_output", "L0_o_proj", "after_layer_0", "after_layer_11"):
        assert distinct[point] > 1


def test_patched_trials_are_the_same():
    found = replay(api.find_case("anchor-a"), 1)
    assert found.determinism.verdict == "DETERMINISTIC"
    assert found.varying_outputs == ()
    assert found.rows_restored == 5 * 3 * 12  # nothing before the first trial; rows x layers
    assert any("sliding pool L0" in name for name in found.changed)


def test_a_trial_depends_on_its_number_alone():
    """Every field of every record: a diagnosis that is cut off goes on where it was."""
    prepared = prepare(api.find_case("anchor-b"), UNPATCHED, copies=0, progress=no_progress)
    trials = [StepTrials(prepared, prefix_run(prepared, 1, progress=no_progress)[0], 1)] * 2
    trials += [StepTrials(prepared, prefix_run(prepared, 1, progress=no_progress)[0], 1)]
    first, second, alone = (
        each.run(number) for each, number in zip(trials, (0, 1, 1), strict=True)
    )
    assert second.records == alone.records != first.records
    assert second.changed == alone.changed
    assert second.tokens == alone.tokens


def test_a_fresh_start_varies_where_repeats_do():
    """Step 0: from a fresh start the state after chunk 0 already varies."""
    found = replay(api.find_case("anchor-a"), 0, UNPATCHED).determinism
    assert named(found.earliest_varying) == (0, "L0_kv_slice_post_write")
    assert found.first_value_varying is None


def test_what_comes_before_must_not_vary():
    case = api.find_case("anchor-a")
    session = msgspec.structs.replace(case.sessions[0], decode=1)
    case = msgspec.structs.replace(case, sessions=(session,))
    found = replay(case, 2, UNPATCHED)
    assert [(x.step, x.session, x.name) for x in found.varying_outputs] == [(1, 0, "logits")]
    assert replay(case, 2).varying_outputs == ()


@pytest.mark.parametrize("step", range(5))
@pytest.mark.parametrize("faults", [(), ("cached-translation",), ("shift-with-global-base",)])
def test_a_replayed_step_gives_the_bytes_of_the_whole_run(step, faults):
    """Eviction, kept sessions and what a fault remembers come back with the state."""
    case = convert_case(SCRIPT, source="test")
    prepared = prepare(case, RunOptions(faults=faults), copies=0, progress=no_progress)
    whole, outcome = run_in_memory(prepared, schedule="seeded:0", on_step=lambda step: None)
    run = execution(prepared, MemorySink([]), schedule="seeded:0")
    run.run_steps(slice(0, step))
    frozen, before, seen_before = run.freeze(), run.state(), run.log.violations
    run.run_steps(slice(step, None))
    assert run.outcome.tokens == outcome.tokens
    for _ in range(2):
        assert run.state() != before
        run.thaw(frozen)
        assert run.state() == before
        assert run.log.violations == seen_before
        sink = MemorySink([])
        run.use("seeded:0", sink)
        run.run_steps(slice(step, None))
        wanted = [(r.name, r.session, r.digest) for r in whole if r.step >= step]
        assert [(r.name, r.session, r.digest) for r in sink.records] == wanted
        assert run.outcome.tokens == outcome.tokens
        seen = [(v.kind, v.step, v.layer) for v in run.outcome.violations]
        assert seen == [(v.kind, v.step, v.layer) for v in outcome.violations]
        assert run.accounts() == outcome.accounts


def test_a_restore_that_does_nothing_is_caught(monkeypatch):
    monkeypatch.setattr(KVPool, "restore", lambda self, kv: 0)
    with pytest.raises(RuntimeError, match="the state before trial 1 is not the frozen one"):
        replay(api.find_case("anchor-a"), 1)


def test_a_restore_that_forgets_the_books_is_caught(monkeypatch):
    from swarepro.frozen import FrozenState

    def pools_alone(self, live, *, shared):
        for stage, pools in zip(live.stages, self.pools, strict=True):
            for group, kv in pools.items():
                stage.pools[group].restore(kv)
        return live, 0

    monkeypatch.setattr(FrozenState, "restore", pools_alone)
    with pytest.raises(RuntimeError, match="free list"):
        replay(api.find_case("anchor-a"), 1)


def test_a_step_that_changes_nothing_proves_nothing(monkeypatch):
    from swarepro.build import Execution

    monkeypatch.setattr(Execution, "state", lambda self: {"nothing": "0"})
    with pytest.raises(IncomparableError, match="changed any state"):
        replay(api.find_case("anchor-a"), 1)


def test_only_rows_that_differ_are_copied():
    case = api.find_case("anchor-a")
    prepared = prepare(case, RunOptions(), copies=0, progress=no_progress)
    run = execution(prepared, MemorySink([]), schedule="program")
    run.run_steps(slice(0, 1))
    frozen = run.freeze()
    assert run.thaw(frozen) == 0
    run.run_steps(slice(1, 2))
    assert run.thaw(frozen) == 3 * 12  # three rows in each of twelve layers
    assert run.thaw(frozen) == 0


def test_nan_rows_are_restored_and_not_copied_for_nothing():
    case = api.find_case("anchor-a")
    prepared = prepare(case, RunOptions(fill="nan"), copies=0, progress=no_progress)
    run = execution(prepared, MemorySink([]), schedule="program")
    run.run_steps(slice(0, 1))
    frozen = run.freeze()
    assert all(bool(torch.isnan(kv).any()) for pools in frozen.pools for kv in pools.values())
    assert run.thaw(frozen) == 0


def test_refusals():
    case = api.find_case("anchor-a")
    with pytest.raises(UsageError, match="steps 0 to 1; step 2 is not one of them"):
        replay(case, 2)
    with pytest.raises(UsageError, match="1 trials cannot vary"):
        replay(case, 1, trials=1)


def test_what_a_fault_did_after_the_frozen_state_is_forgotten():
    """The log, too: a violation of step 1 is none of step 0's."""
    case = api.find_case("anchor-a")
    prepared = prepare(case, UNPATCHED, copies=0, progress=no_progress)
    run = execution(prepared, MemorySink([]), schedule="program")
    run.run_steps(slice(0, 1))
    frozen = run.freeze()
    run.run_steps(slice(1, 2))
    assert "sentinel-read" in {found.kind for found in run.log.violations}
    run.thaw(frozen)
    assert {found.kind for found in run.log.violations} == {"sentinel-store"}


def test_a_whole_run_ends_with_the_shadows_last_look(monkeypatch):
    from swarepro.ownership import OwnershipShadow

    ended = []
    monkeypatch.setattr(OwnershipShadow, "end", lambda self: ended.append(self))
    prepared = prepare(api.find_case("anchor-a"), RunOptions(), copies=0, progress=no_progress)
    execution(prepared, MemorySink([]), schedule="program").run()
    assert len(ended) == 3
