"""Any healthy script is silent, with exact accounts after every event; a defect in it is found."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from swarepro.errors import CapacityError
from swarepro.kvcache import KVGroup
from swarepro.ownership.keys import NOBODY, owner_keys
from swarepro.plan import Phase
from tests.unit.ownership.stage import Passing, SmallStage, on_allocator

PAGES = [1, 4, 16]


@dataclass
class Walk:
    """Plays random moves; knows how far each session is."""

    stage: SmallStage
    running: dict[int, int]
    kept: dict[int, int]
    sessions: int = 0

    def begin(self, draw):
        return self._run({self._new(): draw(st.integers(1, 24))}, Phase.PREFILL)

    def chunk(self, draw):
        if self.running:
            session = draw(st.sampled_from(sorted(self.running)))
            self._run({session: draw(st.integers(1, 20))}, Phase.PREFILL)

    def decode(self, draw):
        self._run(dict.fromkeys(self.running, 1), Phase.DECODE)

    def mixed(self, draw):
        rows = {session: draw(st.integers(1, 5)) for session in self.running}
        self._run(rows | {self._new(): draw(st.integers(1, 9))}, Phase.PREFILL)

    def finish(self, draw):
        if self.running:
            session = draw(st.sampled_from(sorted(self.running)))
            keep = draw(st.booleans())
            length = self.running.pop(session)
            if keep:
                self.kept[session] = length
            self.stage.finish(session, keep=keep)

    def reuse(self, draw):
        lifecycle = self.stage.cache.lifecycle
        of = draw(st.sampled_from(sorted(self.kept))) if self.kept else -1
        rows = lifecycle.reusable(of, draw(st.integers(1, 40)))
        if rows:
            session = self._new()
            self.stage.reuse(session, of, rows)
            del self.kept[of]
            self.running[session] = rows

    def reset(self, draw):
        self.running.clear()
        self.kept.clear()
        self.stage.reset()

    def _new(self) -> int:
        self.sessions += 1
        return self.sessions

    def _run(self, rows: dict[int, int], phase: Phase) -> None:
        spans = [
            (session, self.running.get(session, 0), self.running.get(session, 0) + count)
            for session, count in rows.items()
        ]
        if not spans:
            return
        try:
            self.stage.run(*spans, phase=phase)
        except CapacityError:
            return
        self.running |= {session: end for session, _, end in spans}


MOVES = ["begin", "chunk", "decode", "mixed", "finish", "reuse", "chunk", "decode"]


def play(draw, stage: SmallStage, num_moves: int) -> None:
    walk = Walk(stage, {}, {})
    for _ in range(num_moves):
        move = draw(st.sampled_from([*MOVES, "reset"]))
        getattr(walk, move)(draw)
        assert stage.log.violations == (), stage.first.message
        assert stage.accounts_are_exact()
        assert_shadow_agrees(stage)
    stage.end()
    assert stage.log.violations == ()


def assert_shadow_agrees(stage: SmallStage) -> None:
    """The shadow's owners are the books' owners, slot by slot."""
    events = stage.shadow._events
    for group, states in events.states.items():
        wanted = torch.full_like(states.owner, NOBODY)
        for session in events.books.tables:
            slots = events.books.slots(session, group)
            real = slots != 0
            wanted[slots[real]] = owner_keys(session, 0, slots.numel())[real]
        assert torch.equal(states.owner, wanted), group


@pytest.mark.parametrize("page_size", PAGES)
@pytest.mark.parametrize("evict", [False, True])
@given(data=st.data())
@settings(max_examples=25)
def test_a_healthy_walk_is_silent_and_exact(page_size, evict, data):
    pages = data.draw(st.integers(3, 8))
    swa_pages = data.draw(st.integers(2, pages + 2))
    stage = SmallStage(
        capacity=max(48, pages * page_size),
        swa_capacity=max(24, swa_pages * page_size),
        page_size=page_size,
        evict=evict,
    )
    play(data.draw, stage, data.draw(st.integers(1, 16)))


class LosesPage(Passing):
    """From some call on, one page of the SWA pool is lost when a session is finished."""

    def finish(self, session, *, keep):
        self.inner.finish(session, keep=keep)
        self.swa.free_list = self.swa.free_list[:-1]


@given(data=st.data())
@settings(max_examples=10)
def test_the_walk_would_see_a_leak(data):
    stage = SmallStage(on_allocator(LosesPage), capacity=48, swa_capacity=48)
    walk = Walk(stage, {}, {})
    walk.begin(data.draw)
    walk.finish(data.draw)
    assert stage.first.kind == "mapping-lost" and stage.first.group is KVGroup.SLIDING
    assert not stage.accounts_are_exact()
