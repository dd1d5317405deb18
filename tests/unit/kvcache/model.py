"""A second opinion on who owns what: dictionaries and lists of single slots, no pages, no tensors.

Written from the rules (../../../docs/architecture.md, "The hybrid KV cache"), not from the code.
"""

from dataclasses import dataclass, field

Key = tuple[int, int]
"""A session and a position."""


@dataclass
class Model:
    """Slots of the full pool and, with sliding layers, of the SWA pool.

    A slot is handed out in the order of the free list, and goes to its end when it is freed, in the
    order of the positions. Slots come and go in groups of ``page_size`` positions.
    """

    page_size: int
    window_left: int | None
    free: dict[str, list[int]]
    owner: dict[str, dict[Key, int]]
    frontier: dict[int, int] = field(default_factory=dict)
    kept: list[int] = field(default_factory=list)

    @classmethod
    def make(
        cls, *, page_size: int, pages: int, swa_pages: int | None, window_left: int
    ) -> "Model":
        sizes = {"full": pages} | ({} if swa_pages is None else {"swa": swa_pages})
        return cls(
            page_size=page_size,
            window_left=None if swa_pages is None else window_left,
            free={
                name: list(range(page_size, page_size + count * page_size))
                for name, count in sizes.items()
            },
            owner={name: {} for name in sizes},
        )

    @property
    def running(self) -> list[int]:
        return [session for session in self.frontier if session not in self.kept]

    def lacking(self, session: int, end: int) -> list[int]:
        """Positions up to the end of the page of ``end - 1`` that own no full slot."""
        size = self.page_size
        return [
            position
            for position in range((end + size - 1) // size * size)
            if (session, position) not in self.owner["full"]
        ]

    def fits(self, wanted: dict[int, int]) -> bool:
        """Whether sessions can reach these frontiers, all of them, kept sessions given up."""
        count = sum(len(self.lacking(session, end)) for session, end in wanted.items())
        return all(
            count <= len(self.free[name]) + sum(key[0] in self.kept for key in self.owner[name])
            for name in self.free
        )

    def compute(self, wanted: dict[int, int]) -> list[int]:
        """Move frontiers; return the kept sessions that were given up for it, in order."""
        assert self.fits(wanted)
        count = sum(len(self.lacking(session, end)) for session, end in wanted.items())
        given_up = []
        while any(count > len(slots) for slots in self.free.values()):
            given_up.append(self.kept[0])
            self.forget(self.kept[0])
        for session, end in wanted.items():
            for position in self.lacking(session, end):
                for name in self.free:
                    self.owner[name][session, position] = self.free[name].pop(0)
            self.frontier[session] = max(end, self.frontier.get(session, 0))
        return given_up

    def give_back(self, name: str, session: int, start: int, end: int) -> None:
        for position in range(start, end):
            if (session, position) in self.owner[name]:
                self.free[name].append(self.owner[name].pop((session, position)))

    def forget(self, session: int) -> None:
        end = self.ceiling(session)
        for name in self.free:
            self.give_back(name, session, 0, end)
        del self.frontier[session]
        if session in self.kept:
            self.kept.remove(session)

    def ceiling(self, session: int) -> int:
        """The positions that a session's pages have room for."""
        size = self.page_size
        return (self.frontier[session] + size - 1) // size * size

    def evict(self, session: int, before: int) -> None:
        """Pages that end a whole page below ``before``."""
        if "swa" not in self.free:
            return
        first = 0
        while first + self.page_size <= before - self.page_size:
            self.give_back("swa", session, first, first + self.page_size)
            first += self.page_size

    def finish(self, session: int, *, keep: bool) -> None:
        if keep:
            self.kept.append(session)
        else:
            self.forget(session)

    def can_reuse(self, session: int, of: int, rows: int) -> bool:
        if session in self.frontier or of not in self.kept:
            return False
        if rows < 1 or rows % self.page_size or rows > self.frontier[of]:
            return False
        if self.window_left is None:
            return True
        seen = range(max(0, rows - self.window_left), rows)
        return all((of, position) in self.owner["swa"] for position in seen)

    def reuse(self, session: int, of: int, rows: int) -> None:
        assert self.can_reuse(session, of, rows)
        for name in self.free:
            self.give_back(name, of, rows, self.ceiling(of))
            moved = {key: slot for key, slot in self.owner[name].items() if key[0] == of}
            for (_, position), slot in moved.items():
                del self.owner[name][of, position]
                self.owner[name][session, position] = slot
        self.kept.remove(of)
        del self.frontier[of]
        self.frontier[session] = rows

    def reset(self) -> None:
        for name, slots in self.free.items():
            slots += self.owner[name].values()
            slots.sort()
            self.owner[name].clear()
        self.frontier.clear()
        self.kept.clear()
