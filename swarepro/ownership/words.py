"""The nouns of the shadow's sentences: positions, slots, pools."""

from collections.abc import Sequence

from swarepro.kvcache import KVGroup

POOLS = {KVGroup.FULL: "full", KVGroup.SLIDING: "SWA"}


def positions_text(session: int, positions: Sequence[int]) -> str:
    """Return e.g. "session 1 positions 3 to 6", for positions in ascending order."""
    return f"session {session} {_numbers('position', positions)}"


def slots_text(group: KVGroup, slots: Sequence[int]) -> str:
    """Return e.g. "SWA slot 4", for slots in any order."""
    return f"{POOLS[group]} {_numbers('slot', sorted(set(slots)))}"


def be(things: Sequence[int]) -> str:
    """Return the verb for them."""
    return "is" if len(set(things)) == 1 else "are"


def _numbers(noun: str, numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"{noun} {numbers[0]}"
    first, last = numbers[0], numbers[-1]
    if last - first + 1 == len(numbers):
        return f"{noun}s {first} to {last}"
    return f"{noun}s {first}, ..., {last} ({len(numbers)} of them)"
