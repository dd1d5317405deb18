"""A dictionary model of who owns how many slots: written from the rules, not from the code.

It knows pages by their number alone. It says which steps fit, and what the accounts must be.
"""

from dataclasses import dataclass, field

from swarepro.kvcache import KVGroup
from swarepro.plan import Action, Finish, RunPlan, Span


class Refused(Exception):
    """The step does not fit, or the prefix is no longer there."""


@dataclass(slots=True)
class Held:
    """What one session holds."""

    end: int = 0
    pages: int = 0
    evicted: int = 0
    kept: bool = False


@dataclass(slots=True)
class SlotBooks:
    """The books of one stage; ``swa_pages`` is None for one without sliding layers."""

    page_size: int
    full_pages: int
    swa_pages: int | None
    window_left: int
    evicts: bool
    sessions: dict[int, Held] = field(default_factory=dict)

    def used(self, group: KVGroup) -> int:
        """Pages that sessions hold."""
        return sum(self._held(held, group) for held in self.sessions.values())

    def free(self, group: KVGroup) -> int:
        """Pages that nobody holds."""
        return self._total(group) - self.used(group)

    def begin(self, spans: tuple[Span, ...]) -> None:
        """Give the spans their pages; kept sessions are given up for them, the oldest first."""
        lacking = sum(self._lacking(span) for span in spans)
        kept = [session for session, held in self.sessions.items() if held.kept]
        while any(self.free(group) < lacking for group in self.groups):
            if not kept:
                raise Refused(f"{lacking} pages")
            del self.sessions[kept.pop(0)]
        for span in spans:
            held = self.sessions.setdefault(span.session, Held())
            held.end = max(held.end, span.end)
            held.pages = max(held.pages, -(-span.end // self.page_size))

    def fits(self, spans: tuple[Span, ...]) -> bool:
        """Whether `begin` would refuse nothing."""
        lacking = sum(self._lacking(span) for span in spans)
        return all(lacking <= self._total(group) - self._running(group) for group in self.groups)

    def end(self, spans: tuple[Span, ...]) -> None:
        """Evict whole pages that the next query does not see, but for the last of them."""
        if not self.evicts or self.swa_pages is None:
            return
        for span in spans:
            held = self.sessions[span.session]
            unseen = max(0, span.end - self.window_left)
            held.evicted = max(held.evicted, (unseen // self.page_size - 1) * self.page_size)

    def act(self, action: Action) -> None:
        """Finish a session, or let one take over a prefix."""
        if isinstance(action, Finish):
            held = self.sessions.pop(action.session)
            if action.keep:
                held.kept = True
                self.sessions[action.session] = held
            return
        if self.reusable(action.of, action.rows) != action.rows:
            raise Refused(f"reuse of {action.of}")
        held = self.sessions.pop(action.of)
        self.sessions[action.session] = Held(
            end=action.rows,
            pages=action.rows // self.page_size,
            evicted=min(held.evicted, action.rows),
        )

    def reusable(self, of: int, rows: int) -> int:
        """How many of the first ``rows`` positions can be taken over."""
        held = self.sessions.get(of)
        if held is None or not held.kept:
            return 0
        rows = min(rows, held.end) // self.page_size * self.page_size
        seen = max(0, rows - self.window_left)
        return rows if self.swa_pages is None or held.evicted <= seen else 0

    def reset(self) -> None:
        """Forget everyone."""
        self.sessions.clear()

    @property
    def groups(self) -> tuple[KVGroup, ...]:
        """The groups that have a pool."""
        return (KVGroup.FULL,) if self.swa_pages is None else (KVGroup.FULL, KVGroup.SLIDING)

    def account(self, group: KVGroup) -> dict[str, int]:
        """Return what the account of ``group`` has to say."""
        running = [held for held in self.sessions.values() if not held.kept]
        kept = [held for held in self.sessions.values() if held.kept]
        live = sum(held.end - self._gone(held, group) for held in running)
        return {
            "capacity": self._total(group) * self.page_size,
            "free": self.free(group) * self.page_size,
            "live": live,
            "evictable": sum(self._held(held, group) for held in kept) * self.page_size,
            "reserved": sum(held.pages * self.page_size - held.end for held in running),
            "positions": sum(held.end - self._gone(held, group) for held in self.sessions.values()),
        }

    def _total(self, group: KVGroup) -> int:
        return self.full_pages if group is KVGroup.FULL else self.swa_pages or 0

    def _running(self, group: KVGroup) -> int:
        return sum(self._held(held, group) for held in self.sessions.values() if not held.kept)

    def _gone(self, held: Held, group: KVGroup) -> int:
        return held.evicted if group is KVGroup.SLIDING else 0

    def _held(self, held: Held, group: KVGroup) -> int:
        return held.pages - self._gone(held, group) // self.page_size

    def _lacking(self, span: Span) -> int:
        held = self.sessions.get(span.session, Held())
        return max(0, -(-span.end // self.page_size) - held.pages)


def books_of(plan: RunPlan, *, window_left: int, sliding: bool = True) -> SlotBooks:
    """Return the books of a stage of ``plan``, before its first step."""
    return SlotBooks(
        page_size=plan.page_size,
        full_pages=plan.capacity // plan.page_size,
        swa_pages=plan.swa_capacity // plan.page_size if sliding else None,
        window_left=window_left,
        evicts=plan.evict,
    )


def keep(books: SlotBooks, plan: RunPlan, until: int | None = None) -> SlotBooks:
    """Go through the steps of ``plan`` below ``until``, and return the books; Refused as it is."""
    for step in plan.steps[:until]:
        if step.reset:
            books.reset()
        for action in step.actions:
            books.act(action)
        books.begin(step.spans)
        books.end(step.spans)
    return books


def smallest(plan: RunPlan, *, window_left: int) -> tuple[int, int]:
    """Return the smallest pools, full and SWA in slots, in which all steps of ``plan`` run.

    The full pool is chosen first, beside a roomy SWA pool.
    """

    def runs(full_pages: int, swa_pages: int) -> bool:
        books = books_of(plan, window_left=window_left)
        books.full_pages, books.swa_pages = full_pages, swa_pages
        try:
            keep(books, plan)
        except Refused:
            return False
        return True

    roomy = sum(span.rows for step in plan.steps for span in step.spans)
    full = next(pages for pages in range(1, roomy + 1) if runs(pages, roomy))
    swa = next(pages for pages in range(1, roomy + 1) if runs(full, pages))
    return full * plan.page_size, swa * plan.page_size
