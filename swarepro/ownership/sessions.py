"""What the shadow knows of the sessions of a stage."""

from dataclasses import dataclass, field

import torch

from swarepro.kvcache import KVGroup


def _no_slots() -> dict[KVGroup, torch.Tensor]:
    return {}


@dataclass(slots=True)
class ShadowSession:
    """One session that owns slots.

    Attributes:
        frontier: positions below it were asked for.
        evicted: positions below it lost their SWA slots to an eviction.
        kept: finished, and kept for reuse.
        reverse: by group, ``[P]`` int32: the slot of each position as the books had it last; 0 =
            none.
    """

    frontier: int = 0
    evicted: int = 0
    kept: bool = False
    reverse: dict[KVGroup, torch.Tensor] = field(default_factory=_no_slots)


class ShadowSessions:
    """All sessions of a stage that have not ended.

    Attributes:
        known: by session.
    """

    def __init__(self) -> None:
        self.known: dict[int, ShadowSession] = {}
        self._ended: set[int] = set()

    @property
    def num_bytes(self) -> int:
        """Bytes of the reverse maps."""
        return sum(slots.nbytes for x in self.known.values() for slots in x.reverse.values())

    def begin(self, session: int) -> ShadowSession:
        """Return a session that is known, or becomes known now."""
        self._ended.discard(session)
        return self.known.setdefault(session, ShadowSession())

    def end(self, session: int) -> None:
        """Forget a session; what the books still say of it counts for nothing."""
        self.known.pop(session, None)
        self._ended.add(session)

    def has_ended(self, session: int) -> bool:
        """Return whether a session ended and has not begun again."""
        return session in self._ended

    def clear(self) -> None:
        """Forget everything."""
        self.known.clear()
        self._ended.clear()

    def frontier(self, session: int) -> int:
        """Return a session's frontier; 0 when it is not known."""
        found = self.known.get(session)
        return 0 if found is None else found.frontier

    def evicted(self, session: int) -> int:
        """Return the end of a session's evicted positions; 0 when it is not known."""
        found = self.known.get(session)
        return 0 if found is None else found.evicted
