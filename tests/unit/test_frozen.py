"""What the digests of a state tell apart, and what a thaw puts back."""

from collections import deque
from dataclasses import replace

import numpy as np
import pytest
import torch
from msgspec import structs

from swarepro import api
from swarepro.capture import MemorySink
from swarepro.evidence.held import state_digest
from swarepro.frozen import RANDOM_STATE, prove_restored
from swarepro.kvcache import KVPool
from swarepro.options import RunOptions, no_progress
from swarepro.runs.once import execution
from swarepro.runs.prepare import prepare
from swarepro.runtime.stage import Stage
from swarepro.runtime.wrappers import ScratchWrapper

BOOKS = "stage 0 block tables"


def started(steps=1):
    """Return an execution of anchor-a after some of its two steps."""
    prepared = prepare(api.find_case("anchor-a"), RunOptions(), copies=0, progress=no_progress)
    run = execution(prepared, MemorySink([]), schedule="program")
    run.run_steps(slice(0, steps))
    return run


def allocator(run, rank=0):
    return run._stages[rank].parts.allocator


CHANGES = {
    "evicted": lambda table: setattr(table, "evicted", table.evicted + 1),
    "kept": lambda table: setattr(table, "kept", not table.kept),
    "allocated": lambda table: setattr(table, "allocated", table.allocated - 1),
    "pages": lambda table: setattr(table, "pages", table.pages.flip(0)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_field_of_a_block_table_is_digested(change):
    run = started()
    before = run.state()
    assert run.state() == before
    CHANGES[change](allocator(run).tables[0])
    after = run.state()
    assert after[BOOKS] != before[BOOKS]
    assert after.keys() == before.keys()
    assert {after[name] == digest for name, digest in before.items() if "pool" in name} == {True}


@pytest.mark.parametrize("field", ["mapping", "full free list", "SWA free list"])
def test_the_other_books_are_digested(field):
    run = started()
    before, owner = run.state(), allocator(run, rank=1)
    if field == "mapping":
        owner.mapping[1] += 1
    else:
        pool = owner.full if field.startswith("full") else owner.swa
        pool.free_list = pool.free_list.roll(1)
    after = run.state()
    name = f"stage 1 {field}"
    assert after[name] != before[name]
    assert after[f"stage 0 {field}"] == before[f"stage 0 {field}"]


def test_a_proof_wants_every_name_and_no_other():
    wanted = {"mapping": "1", "tokens": "2"}
    prove_restored(wanted, dict(wanted), "now")
    with pytest.raises(RuntimeError, match=r"the state now is not the frozen one: tokens$"):
        prove_restored(wanted, {"mapping": "1", "tokens": "3"}, "now")
    with pytest.raises(RuntimeError, match=r": tokens$"):
        prove_restored(wanted, {"mapping": "1"}, "now")
    with pytest.raises(RuntimeError, match=r": another$"):
        prove_restored(wanted, wanted | {"another": "4"}, "now")


def test_after_a_thaw_the_last_look_is_that_of_the_shadow_that_watches():
    """A page leaks after the last step, when nothing reads the books any more but the last look."""
    run = started(steps=0)
    run.thaw(run.freeze())

    def leak(step):
        if step.index == 1:
            full = allocator(run).full
            full.free_list = full.free_list[1:]

    outcome = run.run(on_step=leak)
    assert [(found.kind, found.stage) for found in outcome.violations] == [("mapping-lost", 0)]
    assert run.log.violations == outcome.violations


def test_what_is_frozen_after_a_thaw_is_what_runs():
    """Shadow, parts and log of the copy belong together, however often it is thawed."""
    run = started()
    run.thaw(run.freeze())
    run.run_steps(slice(1, 2))
    run.thaw(run.freeze())
    full = allocator(run).full
    full.free_list = full.free_list[1:]
    for shadow in run._shadows:
        shadow.end()
    assert [found.kind for found in run.log.violations] == ["mapping-lost"]


def replayed():
    """Replay a decoded token: its page is there already, so that no list of free pages changes."""
    case = api.find_case("anchor-a")
    session = structs.replace(case.sessions[0], decode=1)
    case = structs.replace(case, sessions=(session,), page_size=16)
    return api.replay_case(case, step=2, trials=3)


def test_the_last_restore_is_proved_too(monkeypatch):
    """The pool that is restored last of all keeps what the last trial wrote."""
    restore, calls = KVPool.restore, []

    def counted(self, kv):
        calls.append(self)
        return restore(self, kv)

    monkeypatch.setattr(KVPool, "restore", counted)
    replayed()
    last = len(calls)
    assert last == (3 + 1) * 5  # each trial and once more, the pools of three stages

    def all_but_the_last(self, kv):
        calls.append(self)
        return 0 if len(calls) == 2 * last else restore(self, kv)

    monkeypatch.setattr(KVPool, "restore", all_but_the_last)
    with pytest.raises(RuntimeError, match="is not the frozen one: stage 2 "):
        replayed()


@pytest.mark.parametrize("odd", [0, 1, 2])
def test_what_any_trial_changed_is_said_to_have_changed(monkeypatch, odd):
    """One trial of three takes a page more from a list that the step leaves alone."""
    name = "stage 1 full free list"
    assert name not in replayed().changed
    run_stage, ran = Stage.run, []

    def odd_one_takes(self, step, hidden):
        out = run_stage(self, step, hidden)
        if step.index == 2 and self.spec.layer_start == 4:
            ran.append(step)
            if len(ran) == odd + 1:
                full = self.parts.allocator.full
                full.free_list = full.free_list[1:]
        return out

    monkeypatch.setattr(Stage, "run", odd_one_takes)
    assert name in replayed().changed


class Drawing(ScratchWrapper):
    """Scratch that draws: what it draws next is a part of the state."""

    def __init__(self, inner, memory):
        super().__init__(inner)
        self.memory = memory


def drawing(run, memory):
    run.wrap(lambda parts: replace(parts, scratch=Drawing(parts.scratch, memory)))
    return run


def test_a_generator_of_a_part_is_state():
    """A restore that left it out would give each trial another draw, and prove nothing."""
    run = drawing(started(), torch.Generator().manual_seed(7))
    frozen, before = run.freeze(), run.state()
    drawn = torch.rand(3, generator=run._stages[0].parts.scratch.memory)
    assert run.state() != before
    run.thaw(frozen)
    assert run.state() == before
    assert torch.equal(torch.rand(3, generator=run._stages[0].parts.scratch.memory), drawn)


def test_torchs_own_generator_is_state():
    run = started()
    frozen, before = run.freeze(), run.state()
    drawn = torch.rand(3)
    assert [name for name in before if run.state()[name] != before[name]] == ["random state"]
    run.thaw(frozen)
    assert run.state() == before
    assert torch.equal(torch.rand(3), drawn)


@pytest.mark.parametrize("memory", [deque([1]), np.random.default_rng(1), np.int64(3), object()])
def test_what_cannot_be_told_is_refused(memory):
    """A digest that is blind to it would call any state the frozen one."""
    with pytest.raises(TypeError, match="of which no state can be kept"):
        drawing(started(), memory).state()


def test_evidence_leaves_out_what_is_called_so_here():
    """The half without torch names that digest by itself: it must be one of these."""
    state = started().state()
    assert RANDOM_STATE in state
    assert state_digest(state) == state_digest(state | {RANDOM_STATE: "another process's"})
