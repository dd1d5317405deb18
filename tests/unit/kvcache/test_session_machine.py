"""Random prefills, decodes and resets against a dictionary model of who owns what."""

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from swarepro.errors import CapacityError, PositionGapError
from swarepro.kvcache import SENTINEL_SLOT, OwnershipCheck, SwaSession


class SessionMachine(RuleBasedStateMachine):
    """Positions to slots, in a dictionary; slots come in ascending order."""

    make = SwaSession

    @initialize(capacity=st.integers(1, 40), spare=st.integers(0, 10))
    def begin(self, capacity, spare):
        self.capacity = capacity
        self.owner = self.make(
            full_slots=torch.arange(1, capacity + spare + 1), swa_capacity=capacity
        )
        self.positions = capacity + spare
        self.model: dict[int, int] = {}
        self.check = OwnershipCheck()
        self.steps = 0

    def compute(self, count: int) -> None:
        start = len(self.model)
        count = min(count, self.positions - start)
        if count == 0:
            return
        if start + count > self.capacity:
            try:
                self.owner.ensure(start, count)
            except CapacityError:
                return
            raise AssertionError("exhaustion was not refused")
        self.owner.ensure(start, count)
        self.model |= {position: position + 1 for position in range(start, start + count)}
        stored = self.owner.translate(self.owner.full_slots[start : start + count])
        self.check.after_store(self.steps, start, stored, self.owner)
        self.steps += 1

    @rule(count=st.integers(1, 12))
    def prefill(self, count):
        self.compute(count)

    @rule()
    def decode(self):
        self.compute(1)

    @rule(count=st.integers(1, 3))
    @precondition(lambda self: self.model)
    def again(self, count):
        self.owner.ensure(0, min(count, len(self.model)))

    @rule(gap=st.integers(1, 3))
    def skip_positions(self, gap):
        try:
            self.owner.ensure(len(self.model) + gap, 1)
        except PositionGapError:
            return
        raise AssertionError("a gap was not refused")

    @rule()
    def reset(self):
        self.owner.reset()
        self.model = {}
        self.check.after_reset(self.steps, self.owner)

    @invariant()
    def accounting_is_exact(self):
        if not hasattr(self, "owner"):
            return
        allocator = self.owner.allocator
        free = allocator.free_list[allocator.num_live :].tolist()
        live = [slot for slot in self.owner.mapping.tolist() if slot != SENTINEL_SLOT]
        assert sorted(free + live) == list(range(1, self.capacity + 1))
        assert len(live) == len(self.model) == self.owner.allocated == allocator.num_live

    @invariant()
    def every_position_owns_what_the_model_says(self):
        if not hasattr(self, "owner"):
            return
        slots = self.owner.translate(self.owner.full_slots).tolist()
        assert slots == [self.model.get(p, SENTINEL_SLOT) for p in range(self.positions)]

    @invariant()
    def the_ownership_check_is_silent(self):
        if hasattr(self, "owner"):
            assert self.check.report(self.owner).violations == ()


TestSession = SessionMachine.TestCase
TestSession.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


class _LeaksOnReset(SwaSession):
    """Forgets the mapping, but not that the slots were handed out."""

    def reset(self) -> None:
        live = self.allocator.num_live
        super().reset()
        self.allocator.num_live = live


class _SkipsReset(SwaSession):
    def reset(self) -> None:
        pass


def test_the_machine_catches_a_leak_and_a_skipped_reset():
    """The negative control: the same machine, over allocators that are broken, has to fail."""
    for broken in (_LeaksOnReset, _SkipsReset):
        machine = SessionMachine()
        machine.make = broken
        machine.begin(capacity=20, spare=0)
        machine.prefill(5)
        machine.reset()
        caught = []
        for name in ("accounting_is_exact", "every_position_owns_what_the_model_says"):
            try:
                getattr(machine, name)()
            except AssertionError:
                caught.append(name)
        assert caught, broken
