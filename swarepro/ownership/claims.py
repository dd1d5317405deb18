"""Which positions the books give which slots: what is held, and what is new."""

from dataclasses import dataclass

import torch

from swarepro.kvcache import SENTINEL_SLOT, KVGroup
from swarepro.ownership.books import Books
from swarepro.ownership.keys import owner_keys
from swarepro.ownership.sessions import ShadowSessions


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The slots of one group that block tables and mapping lead to.

    Attributes:
        held: ``[S]`` bool: a session that has not ended holds the slot.
        ended: ``[S]`` bool: the table of a session that has ended still leads to it.
        new_slots: ``[N]`` int64: slots that a position did not have at the last event.
        new_keys: ``[N]`` int64: keys of these positions, session after session, ascending.
        reverse: by session that is held, ``[P]`` int32: the slot of each position; 0 = none.
    """

    held: torch.Tensor
    ended: torch.Tensor
    new_slots: torch.Tensor
    new_keys: torch.Tensor
    reverse: dict[int, torch.Tensor]


def read_claims(books: Books, group: KVGroup, sessions: ShadowSessions, num_slots: int) -> Claims:
    """Read the claims on the ``num_slots`` slots of a group."""
    held = torch.zeros(num_slots, dtype=torch.bool)
    ended = torch.zeros(num_slots, dtype=torch.bool)
    slots_of_new = [torch.empty(0, dtype=torch.int64)]
    keys_of_new = [torch.empty(0, dtype=torch.int64)]
    reverse = {}
    for session, table in books.tables.items():
        slots = books.slots(session, group)
        known = sessions.known.get(session)
        is_dropped = known is not None and known.kept and not table.kept
        if sessions.has_ended(session) or is_dropped:
            ended[slots] = True
            continue
        held[slots] = True
        last = None if known is None else known.reverse.get(group)
        if last is None:
            last = torch.empty(0, dtype=torch.int32)
        is_new = slots != SENTINEL_SLOT
        both = min(slots.numel(), last.numel())
        is_new[:both] &= slots[:both] != last[:both]
        if bool(is_new.any()):
            slots_of_new.append(slots[is_new])
            keys_of_new.append(owner_keys(session, 0, slots.numel())[is_new])
        reverse[session] = slots.to(torch.int32)
    held[SENTINEL_SLOT] = ended[SENTINEL_SLOT] = False
    return Claims(
        held=held,
        ended=ended,
        new_slots=torch.cat(slots_of_new),
        new_keys=torch.cat(keys_of_new),
        reverse=reverse,
    )
