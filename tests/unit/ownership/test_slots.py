"""The states of slots and the generations of the mapping, by themselves."""

import torch

from swarepro.ownership.history import MappingHistory
from swarepro.ownership.keys import NOBODY, owner_keys, owner_of
from swarepro.ownership.slots import ALLOCATED, FREE, WRITTEN, SlotStates
from swarepro.ownership.violations import Owner


def test_the_life_of_a_slot():
    states = SlotStates(8, 2)
    slots, first, second = torch.tensor([3, 4]), owner_keys(5, 0, 2), owner_keys(7, 1, 3)
    states.give(slots, first)
    states.write(1, slots, torch.tensor([0, 9]), step=6)
    assert states.status.tolist() == [FREE] * 3 + [WRITTEN] * 2 + [FREE] * 3
    assert states.digests[:, 3:5].tolist() == [[0, 0], [1, 9]]
    assert (states.write_step[3], states.generation[3]) == (6, 1)

    states.free(slots)
    assert (states.owner[3], states.previous[3]) == (NOBODY, first[0])
    states.give(slots, second)
    assert states.status[3] == ALLOCATED
    assert states.digests[:, 3:5].tolist() == [[0, 0], [0, 0]]
    assert states.generation.tolist() == [0, 0, 0, 2, 2, 0, 0, 0]
    assert states.previous[3:5].tolist() == first.tolist()
    assert states.owned_by(7).tolist() == [3, 4]
    assert states.owned_by(7, start=2).tolist() == [4]
    assert states.owned_by(7, end=2).tolist() == [3]


def test_a_move_takes_the_rows_along():
    states = SlotStates(8, 1)
    slot = torch.tensor([3])
    states.give(slot, owner_keys(0, 4, 5))
    states.write(0, slot, torch.tensor([9]), step=0)
    states.move(slot, owner_keys(1, 4, 5))
    assert (states.status[3], states.generation[3], states.digests[0, 3]) == (WRITTEN, 1, 9)
    assert owner_of(int(states.owner[3])) == Owner(session=1, position=4)


def test_the_mapping_is_remembered_two_generations_back():
    history = MappingHistory(3)
    entry = torch.tensor([1])
    now = torch.zeros(3, dtype=torch.int32)
    for slot in (5, 0, 6, 7):
        new = now.clone()
        new[1] = slot
        history.update(now, new)
        now = new
    history.update(now, now)
    assert (history.generation, int(history.changed[1])) == (4, 4)
    is_old = [bool(history.is_old(entry, torch.tensor([slot]))) for slot in (4, 5, 6, 7)]
    assert is_old == [False, True, True, False]


def walked(*mappings):
    """Return the history of a mapping of three entries that went through ``mappings``."""
    history = MappingHistory(3)
    now = torch.zeros(3, dtype=torch.int32)
    for mapping in mappings:
        new = torch.tensor(mapping, dtype=torch.int32)
        history.update(now, new)
        now = new
    return history


def test_an_entry_that_came_back_to_what_it_was_keeps_the_one_before():
    """4, 5, none, 5, 6: the two before 6 are 5 and 4, however often 5 was there."""
    history = walked([0, 4, 0], [0, 5, 0], [0, 0, 0], [0, 5, 0], [0, 6, 0])
    assert history.previous[:, 1].tolist() == [5, 4]


def test_an_entry_that_does_not_change_has_no_earlier_slot():
    """Its slot is today's, and no change of another entry makes it an old one."""
    history = walked([9, 4, 0], [9, 5, 0], [9, 6, 0])
    assert history.previous.tolist() == [[0, 5, 0], [0, 4, 0]]
    assert history.changed.tolist() == [1, 3, 0]
    assert history.is_old(torch.tensor([0, 1, 2]), torch.tensor([9, 5, 0])).tolist()[:2] == [
        False,
        True,
    ]


def test_no_slot_is_no_earlier_slot():
    history = walked([0, 4, 0], [0, 5, 0], [0, 0, 0], [0, 6, 0])
    assert history.previous[:, 1].tolist() == [5, 4]
