"""What the allocator's calls mean for the shadow: who is asked to own what, and who ends.

After each call the books are read again. First what the call had to do is applied to the shadow,
then the rest of the difference is judged.
"""

from collections.abc import Mapping, Sequence

import torch

from swarepro.kvcache import SENTINEL_SLOT, KVGroup
from swarepro.ownership.books import Books
from swarepro.ownership.capacity import check_exhaustion, check_half_allocated
from swarepro.ownership.history import MappingHistory
from swarepro.ownership.keys import owner_of, positions_of, sessions_of
from swarepro.ownership.reconcile import Reconciler
from swarepro.ownership.reporter import Reporter
from swarepro.ownership.reuse import check_window, take_over
from swarepro.ownership.sessions import ShadowSessions
from swarepro.ownership.slots import SlotStates
from swarepro.ownership.violations import Owner
from swarepro.ownership.words import be, positions_text, slots_text
from swarepro.plan import Span
from swarepro.runtime.parts import Allocator


class AllocatorEvents:
    """Follows the allocator of one stage.

    Attributes:
        states: by group, what the shadow knows of the slots.
        sessions: that have not ended.
        history: of the mapping.
        spans: of the last call that asked for slots: what is computed now.
        books: as they were after the last event.
    """

    def __init__(
        self, allocator: Allocator, states: Mapping[KVGroup, SlotStates], report: Reporter
    ) -> None:
        self.states = states
        self.sessions = ShadowSessions()
        self.spans: tuple[Span, ...] = ()
        self.books = Books(allocator)
        self._is_settled = True
        self.history = MappingHistory(self.books.mapping.numel())
        self._allocator = allocator
        self._report = report
        self._groups = {
            group: Reconciler(group, state, self.books, report) for group, state in states.items()
        }
        self._judge()

    @property
    def num_bytes(self) -> int:
        """Bytes of all that is kept by slot, but the digests."""
        held = sum(state.num_bytes for state in self.states.values())
        held += sum(group.listed.nbytes for group in self._groups.values())
        return held + self.sessions.num_bytes + self.history.num_bytes + self.books.num_bytes

    def asked(self, spans: Sequence[Span]) -> None:
        """Spans are about to be checked: none may begin beyond its session's frontier.

        A span behind the frontier computes its rows again, into the slots that they own: that harms
        nobody. Where they are evicted it has to be refused; where it is not, the store says so.
        """
        for span in spans:
            frontier = self.sessions.frontier(span.session)
            if span.start > frontier:
                gap = list(range(frontier, span.start))
                self._report(
                    "position-gap",
                    f"session {span.session} goes on at position {span.start}, and"
                    f" {positions_text(span.session, gap)} {be(gap)} computed by nobody",
                    positions=gap,
                    user=Owner(session=span.session, position=span.start),
                )

    def ensured(self, spans: Sequence[Span], *, refused: bool) -> None:
        """Slots were asked for up to each span's end."""
        before = self.books
        changed = self._read()
        if refused:
            if changed:
                check_half_allocated(before, self.books, spans, self._report)
                self._judge()
            return
        self.spans = tuple(spans)
        for span in spans:
            known = self.sessions.begin(span.session)
            known.frontier = max(known.frontier, span.end)
        check_exhaustion(before, self.books, spans, self._report)
        if changed:
            # Only a mapping can be made late; without one, nothing comes after this call.
            self._judge(is_settled=KVGroup.SLIDING not in self.states)

    def touched(self) -> None:
        """A call that should change nothing has returned; late allocations are found here."""
        if self._read() or not self._is_settled:
            self._judge()

    def evicted(self, session: int, before: int) -> None:
        """SWA slots of positions below ``before`` may have been freed."""
        if not self._read() and self._is_settled:
            return
        if session in self.sessions.known and KVGroup.SLIDING in self.states:
            states, group = self.states[KVGroup.SLIDING], self._groups[KVGroup.SLIDING]
            owned = states.owned_by(session, end=before)
            freed = owned[group.pushed(self.books)[owned]]
            if freed.numel():
                known = self.sessions.known[session]
                last = int(positions_of(states.owner[freed]).max())
                known.evicted = max(known.evicted, last + 1)
                states.free(freed)
        self._judge()

    def finished(self, session: int, *, keep: bool) -> None:
        """A session ended."""
        self._read()
        if session in self.sessions.known:
            if keep:
                self.sessions.known[session].kept = True
            else:
                self._end(session)
        self._judge()

    def reused(self, session: int, of: int, rows: int) -> None:
        """``session`` took over the first ``rows`` positions of ``of``."""
        self._read()
        if session in self.books.tables:
            window_left = self._allocator.window_left
            if window_left is not None and KVGroup.SLIDING in self.states:
                states = self.states[KVGroup.SLIDING]
                check_window(self.books, states, session, of, rows, window_left, self._report)
            for group, states in self.states.items():
                slots = self.books.slots(session, group)
                take_over(states, slots, session, of)
                self.sessions.begin(session).reverse[group] = slots.to(torch.int32)
            known = self.sessions.begin(session)
            known.frontier = rows
            known.evicted = min(self.sessions.evicted(of), rows)
            self.sessions.end(of)
        self._judge()

    def was_reset(self) -> None:
        """Every session was forgotten."""
        self._read()
        self.sessions.clear()
        self.spans = ()
        for group, states in self.states.items():
            self._check_reset(group, states)
            states.free(states.status.nonzero().flatten())
        self._judge()

    def end(self) -> None:
        """The run has ended: account once more."""
        self._read()
        self._judge()

    def _read(self) -> bool:
        """Read the books; return whether they have changed."""
        found = Books(self._allocator)
        if found.same_as(self.books):
            return False
        self.history.update(self.books.mapping, found.mapping)
        self.books = found
        return True

    def _judge(self, *, is_settled: bool = True) -> None:
        """Give up kept sessions that the books have forgotten, and judge what is left."""
        self._is_settled = is_settled
        known = self.sessions.known
        for session in [x for x in known if known[x].kept and x not in self.books.tables]:
            self._end(session)
        for group in self._groups.values():
            group(self.books, self.sessions, is_settled=is_settled)

    def _end(self, session: int) -> None:
        for states in self.states.values():
            states.free(states.owned_by(session))
        self.sessions.end(session)

    def _check_reset(self, group: KVGroup, states: SlotStates) -> None:
        """Nothing may be held: no table, and no entry of the mapping that leads to a taken slot."""
        books = self.books
        held = torch.zeros(states.num_slots, dtype=torch.bool)
        if group is KVGroup.SLIDING:
            inside = (books.mapping > SENTINEL_SLOT) & (books.mapping < states.num_slots)
            taken = books.mapping[inside].to(torch.int64)
            held[taken[~torch.isin(taken // books.page_size, books.free[group])]] = True
        for session in books.tables:
            held[books.slots(session, group)] = True
        held[SENTINEL_SLOT] = False
        slots = held.nonzero().flatten()
        if not slots.numel():
            return
        keys = states.last_keys(slots)
        owner = owner_of(int(keys[0]))
        mine = sessions_of(keys) == sessions_of(keys[0])
        found = slots[mine].tolist()
        whose = f" by {owner}" if len(found) == 1 else f", the first by {owner}"
        self._report(
            "live-after-reset",
            f"{slots_text(group, found)} {be(found)} still owned after the reset{whose}: it was"
            " skipped, or left something out",
            group=group,
            positions=sorted(positions_of(keys[mine]).tolist()),
            slots=found,
            owner=owner,
        )
