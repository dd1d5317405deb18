"""Random scripts of several sessions, run by an owner and by the dictionary model beside it."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from swarepro.errors import CapacityError, PositionGapError, ReuseError, SessionError
from swarepro.kvcache import SENTINEL_SLOT, SlotLifecycle
from swarepro.plan import Span
from tests.unit.kvcache.model import Model
from tests.unit.kvcache.owners import check_books, expand, fresh, snapshot, swa_slots

MOST_RUNNING = 4


class LifecycleMachine(RuleBasedStateMachine):
    """Each rule is done by both; refusals must be the same, and change nothing."""

    make: type[SlotLifecycle] = SlotLifecycle
    owner: SlotLifecycle
    model: Model

    @initialize(
        page_size=st.sampled_from([1, 4, 16]),
        pages=st.integers(1, 24),
        swa_pages=st.none() | st.integers(1, 24),
        window_left=st.integers(1, 20),
    )
    def begin(self, page_size, pages, swa_pages, window_left):
        self.owner = fresh(
            pages, swa_pages=swa_pages, page_size=page_size, window_left=window_left, make=self.make
        )
        self.model = Model.make(
            page_size=page_size, pages=pages, swa_pages=swa_pages, window_left=window_left
        )
        self.next_session = 0

    def new_session(self) -> int:
        self.next_session += 1
        return self.next_session - 1

    def refused(self, kind: type[SessionError], call, *args) -> None:
        """The call is refused as ``kind``, and nothing at all has changed."""
        before = snapshot(self.owner)
        try:
            call(*args)
        except SessionError as error:
            assert type(error) is kind, error
        else:
            raise AssertionError(f"not refused: {args}")
        assert snapshot(self.owner) == before

    def compute(self, wanted: dict[int, int]) -> None:
        """One step: the sessions reach these frontiers, or none does."""
        step = tuple(
            Span(session=session, start=self.model.frontier.get(session, 0), end=end)
            for session, end in wanted.items()
        )
        if not self.model.fits(wanted):
            self.refused(CapacityError, self.owner.check, step)
            self.refused(CapacityError, self.owner.ensure, step)
            return
        before = snapshot(self.owner)
        self.owner.check(step)
        assert snapshot(self.owner) == before
        self.owner.ensure(step)
        self.model.compute(wanted)

    @rule(
        chunks=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 40)), min_size=1, max_size=3),
        new=st.booleans(),
    )
    def prefill(self, chunks, new):
        """Chunks of one or several sessions in one step; a new one may be the last of them."""
        running = self.model.running
        wanted = {}
        for choice, rows in chunks:
            if running:
                session = running[choice % len(running)]
                wanted[session] = self.model.frontier[session] + rows
        if (new or not wanted) and len(running) < MOST_RUNNING:
            wanted[self.new_session()] = chunks[-1][1]
        if wanted:
            self.compute(wanted)

    @rule(mask=st.integers(1, 15))
    def decode(self, mask):
        running = [s for i, s in enumerate(self.model.running) if mask >> i & 1]
        if running:
            self.compute({session: self.model.frontier[session] + 1 for session in running})

    @rule(choice=st.integers(0, 9), count=st.integers(1, 40))
    @precondition(lambda self: self.model.running)
    def again(self, choice, count):
        """What is owned already is asked for again: nothing happens; or it was evicted."""
        session = self.model.running[choice % len(self.model.running)]
        end = min(count, self.model.frontier[session])
        before = snapshot(self.owner)
        again = (Span(session=session, start=0, end=end),)
        if (session, 0) in self.model.owner.get("swa", {(session, 0): 0}):
            self.owner.ensure(again)
        else:
            self.refused(SessionError, self.owner.ensure, again)
        assert snapshot(self.owner) == before

    @rule(choice=st.integers(0, 9), early=st.sampled_from([0, 0, 0, 1, 7]))
    @precondition(lambda self: self.model.running and self.model.window_left is not None)
    def evict(self, choice, early):
        """What the next query cannot see goes, as after a step; or less than that."""
        session = self.model.running[choice % len(self.model.running)]
        visible = max(0, self.model.frontier[session] - self.model.window_left)
        self.owner.evict(session, max(0, visible - early))
        self.model.evict(session, max(0, visible - early))
        slots = swa_slots(self.owner, session, self.model.frontier[session])
        assert SENTINEL_SLOT not in slots[visible:]

    @rule(choice=st.integers(0, 9), keep=st.booleans())
    def finish(self, choice, keep):
        running = self.model.running
        if running:
            session = running[choice % len(running)]
            self.owner.finish(session, keep=keep)
            self.model.finish(session, keep=keep)

    @rule()
    def finish_a_stranger(self):
        before = snapshot(self.owner)
        self.owner.finish(10_000, keep=True)
        assert snapshot(self.owner) == before

    @rule(rows=st.integers(1, 60), split=st.integers(0, 60))
    def serve_and_keep(self, rows, split):
        """A session from its first chunk to its end, with eviction after each step."""
        session = self.new_session()
        for end in (min(split, rows - 1), rows):
            if end and self.model.fits({session: end}):
                self.compute({session: end})
                before = max(0, end - (self.model.window_left or end))
                self.owner.evict(session, before)
                self.model.evict(session, before)
        self.owner.finish(session, keep=True)
        if session in self.model.frontier:
            self.model.finish(session, keep=True)

    @rule(
        choice=st.integers(0, 9),
        back=st.integers(0, 5),
        odd=st.sampled_from([0, 0, 0, 0, 1, 3, 16]),
        kind=st.sampled_from(["kept", "kept", "kept", "any", "into a running one"]),
    )
    def reuse(self, choice, back, odd, kind):
        """Whole pages of a prefix are asked for, mostly; from the end of it, or some pages less."""
        sessions = self.model.kept if kind == "kept" else list(self.model.frontier)
        of = sessions[choice % len(sessions)] if sessions else 10_000
        pages = max(0, self.model.frontier.get(of, 0) // self.model.page_size - back)
        rows = pages * self.model.page_size + odd
        running = self.model.running
        session = running[0] if kind == "into a running one" and running else self.new_session()
        if self.model.can_reuse(session, of, rows):
            self.owner.reuse(session, of, rows)
            self.model.reuse(session, of, rows)
        else:
            self.refused(ReuseError, self.owner.reuse, session, of, rows)

    @rule()
    def reset(self):
        self.owner.reset()
        self.model.reset()

    @rule(choice=st.integers(0, 9), gap=st.integers(1, 3))
    def leave_a_gap(self, choice, gap):
        running = self.model.running
        session = running[choice % len(running)] if running else 10_000
        start = self.model.frontier.get(session, 0) + gap
        gapped = Span(session=session, start=start, end=start + 1)
        fine = Span(session=10_001, start=0, end=1)
        self.refused(PositionGapError, self.owner.ensure, (fine, gapped))

    @rule(choice=st.integers(0, 9), more=st.integers(1, 3))
    def ask_for_too_much(self, choice, more):
        """Just more than one of the pools has with all kept sessions given up, in two spans."""
        size, model = self.model.page_size, self.model
        room = min(
            len(free) + sum(key[0] in model.kept for key in model.owner[name])
            for name, free in model.free.items()
        )
        first = min(choice, room // size) * size
        ends = {10_002: first, 10_003: room - first + more}
        wanted = tuple(Span(session=s, start=0, end=end) for s, end in ends.items() if end)
        self.refused(CapacityError, self.owner.ensure, wanted)

    @rule(choice=st.integers(0, 9))
    @precondition(lambda self: self.model.kept)
    def go_on_with_a_kept_session(self, choice):
        session = self.model.kept[choice % len(self.model.kept)]
        end = self.model.frontier[session] + 1
        self.refused(
            SessionError, self.owner.ensure, (Span(session=session, start=end - 1, end=end),)
        )

    @invariant()
    def owners_are_what_the_model_says(self):
        if not hasattr(self, "owner"):
            return
        owner, model = self.owner, self.model
        assert set(owner.tables) == set(model.frontier)
        assert [s for s, table in owner.tables.items() if table.kept] == model.kept
        for session, frontier in model.frontier.items():
            assert owner.tables[session].allocated == frontier
            positions = range(model.ceiling(session))
            full = owner.full_slots(session, len(positions))
            assert full.tolist() == [model.owner["full"][session, p] for p in positions]
            if owner.swa is not None:
                swa = [model.owner["swa"].get((session, p), SENTINEL_SLOT) for p in positions]
                assert owner.translate(full).tolist() == swa

    @invariant()
    def free_lists_are_what_the_model_says(self):
        if not hasattr(self, "owner"):
            return
        size = self.model.page_size
        assert expand(self.owner.full.free_list.tolist(), size) == self.model.free["full"]
        if self.owner.swa is not None:
            assert expand(self.owner.swa.free_list.tolist(), size) == self.model.free["swa"]

    @invariant()
    def the_books_balance(self):
        if not hasattr(self, "owner"):
            return
        counts = check_books(self.owner)
        model = self.model
        for name, (free, live, evictable, reserved) in counts.items():
            keys = model.owner[name]
            assert free == len(model.free[name])
            assert evictable == sum(key[0] in model.kept for key in keys)
            running = [key for key in keys if key[0] not in model.kept]
            assert live == sum(position < model.frontier[s] for s, position in running)
            assert reserved == len(running) - live
