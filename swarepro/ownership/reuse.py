"""Prefix reuse: whose rows the window of the next query will see."""

import torch

from swarepro.kvcache import KVGroup
from swarepro.ownership.books import Books
from swarepro.ownership.keys import owner_keys, positions_of
from swarepro.ownership.reporter import Reporter
from swarepro.ownership.slots import FREE, SlotStates
from swarepro.ownership.violations import Owner
from swarepro.ownership.words import positions_text


def check_window(
    books: Books,
    states: SlotStates,
    session: int,
    of: int,
    rows: int,
    window_left: int,
    report: Reporter,
) -> None:
    """Every position that the next query sees needs a live SWA slot.

    A slot that holds another position's row is left to the gather: there it is read.
    """
    start = max(0, rows - window_left)
    slots = books.slots(session, KVGroup.SLIDING)[start:rows]
    slots = torch.cat([slots, torch.zeros(rows - start - slots.numel(), dtype=torch.int64)])
    missing = states.status[slots] == FREE  # as slot 0 always is
    if not bool(missing.any()):
        return
    positions = (missing.nonzero().flatten() + start).tolist()
    count = "1 row" if len(positions) == 1 else f"{len(positions)} rows"
    report(
        "window-not-covered",
        f"session {session} takes over {rows} rows of session {of}, and"
        f" {positions_text(of, positions)} own no live SWA slot: a query at position {rows} sees"
        f" {count} that nobody has",
        group=KVGroup.SLIDING,
        positions=positions,
        slots=sorted(set(slots[missing].tolist())),
        owner=Owner(session=of, position=positions[0]),
        user=Owner(session=session, position=rows),
    )


def take_over(states: SlotStates, slots: torch.Tensor, session: int, of: int) -> None:
    """Let ``session`` own those of ``slots`` that ``of`` owned, rows and all; free what it leaves.

    A slot stays the slot of the position whose row it holds, whatever the books call it now.
    """
    taken = torch.zeros(states.num_slots, dtype=torch.bool)
    taken[slots] = True
    owned = states.owned_by(of)
    states.free(owned[~taken[owned]])
    moved = owned[taken[owned]]
    states.move(moved, positions_of(states.owner[moved]) + owner_keys(session, 0, 1))
