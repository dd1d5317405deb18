"""Reconciles the shadow of one pool with the allocator's books after an event.

Before it runs, the event's own effect on the shadow has been applied: whatever the books say beyond
that is news. The order of the checks is the order of causes: what the free list holds, what was
freed, what was handed out, what still points to freed slots, what is missing.
"""

import torch

from swarepro.kvcache import SENTINEL_SLOT, KVGroup, slots_of
from swarepro.ownership.books import Books
from swarepro.ownership.claims import Claims, read_claims
from swarepro.ownership.keys import owner_of, positions_of, sessions_of
from swarepro.ownership.reporter import Reporter
from swarepro.ownership.sessions import ShadowSessions
from swarepro.ownership.slots import FREE, SlotStates
from swarepro.ownership.words import be, positions_text, slots_text


class Reconciler:
    """The accounting of one group.

    Attributes:
        states: what the shadow knows of the slots.
        listed: ``[num_pages + 1]`` int32: how often the free list held each page at the last event.
    """

    def __init__(self, group: KVGroup, states: SlotStates, books: Books, report: Reporter) -> None:
        self.group = group
        self.states = states
        self.listed = torch.zeros(books.num_pages[group] + 1, dtype=torch.int32)
        self._page_size = books.page_size
        self._report = report

    def __call__(self, books: Books, sessions: ShadowSessions, *, is_settled: bool) -> None:
        """Report what the books break, and adopt what they say.

        What is handed out may reach the mapping after the metadata was built: that is a defect, and
        the store shows it. So nothing is lost before the books are settled.
        """
        before = self.listed
        self.listed = self._read_free_list(books.free[self.group])
        on_free = self._by_slot(self.listed > 0)
        claims = read_claims(books, self.group, sessions, self.states.num_slots)
        self._check_freed(self._by_slot(self.listed > before), claims, sessions)
        self._adopt(claims, sessions)
        self._check_free_while_mapped(on_free, claims, books)
        self._check_free_and_claimed(on_free, claims)
        if is_settled:
            self._check_lost(on_free, claims)

    def _read_free_list(self, pages: torch.Tensor) -> torch.Tensor:
        last = self.listed.numel() - 1
        is_page = (pages > 0) & (pages <= last)
        if not bool(is_page.all()):
            self._report_no_pages(pages[~is_page].tolist(), last)
        listed = torch.bincount(pages[is_page], minlength=last + 1).to(torch.int32)
        twice = (listed > 1).nonzero().flatten()
        if twice.numel():
            slots = slots_of(twice, self._page_size).tolist()
            owner = owner_of(int(self.states.last_keys(twice[:1] * self._page_size)))
            first = "it" if len(slots) == 1 else "the first"
            whose = f" ({owner} was the last to own {first})" if owner else ""
            self._report(
                "double-free",
                f"{slots_text(self.group, slots)} {be(slots)} on the free list twice{whose}: two"
                " sessions will own the same slots",
                group=self.group,
                slots=slots,
                owner=owner,
            )
        return listed

    def _report_no_pages(self, pages: list[int], last: int) -> None:
        if 0 in pages:
            slots = list(range(self._page_size))
            often = f" ({pages.count(0)} times)" if pages.count(0) > 1 else ""
            self._report(
                "free-of-sentinel",
                f"{slots_text(self.group, slots)}, the sentinel's, {be(slots)} on the free list"
                f"{often}: it will be handed out as if it were a slot",
                group=self.group,
                slots=slots,
            )
        beyond = [page for page in pages if page != 0]
        if beyond:
            self._report(
                "index-out-of-range",
                f"page {beyond[0]} is on the free list of a pool whose pages are 1 to {last}",
                group=self.group,
                slots=[beyond[0] * self._page_size],
            )

    def _check_freed(self, pushed: torch.Tensor, claims: Claims, sessions: ShadowSessions) -> None:
        """What came onto the free list must not be owned: nobody ended or evicted its owner."""
        freed = (pushed & (self.states.status != FREE)).nonzero().flatten()
        if not freed.numel():
            return
        keys = self.states.owner[freed]
        session = int(sessions_of(keys[0]))
        mine = sessions_of(keys) == session
        slots, positions = freed[mine].tolist(), sorted(positions_of(keys[mine]).tolist())
        self._report(
            "free-of-live",
            f"{slots_text(self.group, slots)} {be(slots)} freed while"
            f" {positions_text(session, positions)} own{'s' * (len(slots) == 1)}"
            f" {'it' if len(slots) == 1 else 'them'}: nothing ended or evicted that",
            group=self.group,
            positions=positions,
            slots=slots,
            owner=owner_of(int(keys[0])),
        )
        # Where a table still lists the slot, its owner stays: the next one to get it clashes.
        gone = freed[~claims.held[freed]]
        self.states.free(gone)
        if self.group is KVGroup.SLIDING and session in sessions.known and gone.numel():
            known = sessions.known[session]
            known.evicted = max(known.evicted, positions[-1] + 1)

    def _adopt(self, claims: Claims, sessions: ShadowSessions) -> None:
        """Take over who owns what; a slot that is handed out must not have an owner."""
        slots, keys = claims.new_slots, claims.new_keys
        if slots.numel():
            owners = self.states.owner[slots]
            clash = (self.states.status[slots] != FREE) & (owners != keys)
            if bool(clash.any()):
                self._report_clash(slots[clash], owners[clash], keys[clash])
            fresh = owners != keys
            self.states.give(slots[fresh], keys[fresh])
            if not torch.equal(self.states.owner[slots], keys):
                self._settle_repeats(slots, keys)
        for session, reverse in claims.reverse.items():
            sessions.begin(session).reverse[self.group] = reverse

    def _settle_repeats(self, slots: torch.Tensor, keys: torch.Tensor) -> None:
        """One slot was handed out to several positions at once: the last of them owns it."""
        owners: dict[int, int] = {}
        for slot, key in zip(slots.tolist(), keys.tolist(), strict=True):
            if slot in owners:
                one = torch.tensor([slot])
                self._report_clash(one, torch.tensor([owners[slot]]), torch.tensor([key]))
                self.states.move(one, torch.tensor([owners[slot]]))
                self.states.give(one, torch.tensor([key]))
            owners[slot] = key

    def _report_clash(self, slots: torch.Tensor, owners: torch.Tensor, keys: torch.Tensor) -> None:
        user = owner_of(int(keys[0]))
        owner = owner_of(int(owners[0]))
        mine = sessions_of(keys) == sessions_of(keys[0])
        more = "" if slots.numel() == 1 else f"; {slots.numel()} slots have two owners like that"
        self._report(
            "alloc-over-live-mapping",
            f"{slots_text(self.group, [int(slots[0])])} is handed out to {user} while {owner}"
            f" owns it{more}",
            group=self.group,
            positions=positions_of(keys[mine]).tolist(),
            slots=slots[mine].tolist(),
            owner=owner,
            user=user,
        )

    def _check_free_while_mapped(self, on_free: torch.Tensor, claims: Claims, books: Books) -> None:
        """Nothing may lead to a slot that is free: no entry of the mapping, no block table."""
        free = on_free & (self.states.status == FREE)
        listed = (claims.held | claims.ended) & free
        if self.group is KVGroup.SLIDING:
            entries = books.mapping.to(torch.int64)
            inside = (entries > SENTINEL_SLOT) & (entries < free.numel())
            mapped = inside & free[torch.where(inside, entries, SENTINEL_SLOT)]
            full_slots = mapped.nonzero().flatten()
            slots = entries[full_slots]
            through = f"full slot {int(full_slots[0])}" if full_slots.numel() else ""
        else:
            slots = listed.nonzero().flatten()
            through = "a block table"
        if not slots.numel() or self._report.knows("free-while-mapped", self.group):
            return
        keys = self.states.previous[slots]
        owner = owner_of(int(keys[0]))
        mine = sessions_of(keys) == sessions_of(keys[0])
        whose = f", for {owner}, which owned it" if owner else ""
        self._report(
            "free-while-mapped",
            f"{slots_text(self.group, [int(slots[0])])} is free, and {through} still leads to it"
            f"{whose}: {_count(slots.numel())} that the next owner will overwrite",
            group=self.group,
            positions=sorted(positions_of(keys[mine]).tolist()) if owner else [],
            slots=slots[mine].tolist(),
            owner=owner,
        )

    def _check_free_and_claimed(self, on_free: torch.Tensor, claims: Claims) -> None:
        """A slot that was handed out must have left the free list."""
        both = (on_free & claims.held & (self.states.status != FREE)).nonzero().flatten()
        if not both.numel() or self._report.knows("free-of-live", self.group):
            return
        keys = self.states.owner[both]
        owner = owner_of(int(keys[0]))
        mine = sessions_of(keys) == sessions_of(keys[0])
        slots = both[mine].tolist()
        self._report(
            "free-of-live",
            f"{slots_text(self.group, slots)} {be(slots)} on the free list while {owner} owns"
            f" {'it' if len(slots) == 1 else 'the first'}: they will be handed out once more",
            group=self.group,
            positions=sorted(positions_of(keys[mine]).tolist()),
            slots=slots,
            owner=owner,
        )

    def _check_lost(self, on_free: torch.Tensor, claims: Claims) -> None:
        """Every slot of the pool is free, or a session holds it."""
        accounted = on_free | claims.held
        accounted[: self._page_size] = True
        accounted[self.listed.numel() * self._page_size :] = True
        lost = (~accounted).nonzero().flatten()
        if not lost.numel():
            return
        keys = self.states.last_keys(lost)
        owner = owner_of(int(keys[0]))
        mine = sessions_of(keys) == sessions_of(keys[0])
        slots = lost[mine].tolist()
        whose = f"; {owner} owned {'it' if len(slots) == 1 else 'the first'}, and" if owner else ","
        self._report(
            "mapping-lost",
            f"{slots_text(self.group, slots)} {be(slots)} neither free nor held by a session"
            f"{whose} nothing leads there any more: a leak",
            group=self.group,
            positions=sorted(positions_of(keys[mine]).tolist()) if owner else [],
            slots=slots,
            owner=owner,
        )
        self.states.free(lost[self.states.status[lost] != FREE])

    def pushed(self, books: Books) -> torch.Tensor:
        """Return ``[S]`` bool: slots that came onto the free list since the last event."""
        pages = books.free[self.group]
        pages = pages[(pages > 0) & (pages < self.listed.numel())]
        return self._by_slot(torch.bincount(pages, minlength=self.listed.numel()) > self.listed)

    def _by_slot(self, pages: torch.Tensor) -> torch.Tensor:
        """Return ``[S]`` bool of ``[num_pages + 1]`` bool."""
        found = torch.zeros(self.states.num_slots, dtype=torch.bool)
        slots = pages.repeat_interleave(self._page_size)
        found[: slots.numel()] = slots
        return found


def _count(number: int) -> str:
    return "a stale entry" if number == 1 else f"{number} stale entries"
