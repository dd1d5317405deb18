"""The check of a store by itself: which rows are right, and what is said of those that are not."""

import pytest
import torch

from swarepro.kvcache import KVGroup
from swarepro.ownership import Owner, ViolationLog
from swarepro.ownership.keys import owner_keys
from swarepro.ownership.reporter import Reporter
from swarepro.ownership.slots import ALLOCATED, SlotStates
from swarepro.ownership.stores import StoreCheck
from swarepro.plan import Phase, Span
from swarepro.runtime.parts import StoreContext
from tests.unit.ownership.stage import row_digests

SLIDING = KVGroup.SLIDING
NUM_SLOTS = 24


class Checked:
    """Session 0 owns slots 4 to 7 with positions 0 to 3, session 1 slots 8 to 11; pages of four."""

    def __init__(self) -> None:
        self.states = SlotStates(NUM_SLOTS, 2)
        self.states.give(torch.arange(4, 8), owner_keys(0, 0, 4))
        self.states.give(torch.arange(8, 12), owner_keys(1, 0, 4))
        self.log = ViolationLog()
        report = Reporter(self.log, 0)
        self._check = StoreCheck(
            {SLIDING: self.states}, {SLIDING: NUM_SLOTS}, 4, row_digests, report
        )

    def store(self, slots: torch.Tensor, *spans: tuple[int, int, int]) -> list[bool]:
        """Check a store, remember its rows, and return which of them are right."""
        context = StoreContext(
            step=0,
            layer=0,
            group=SLIDING,
            pool_layer=0,
            spans=tuple(
                Span(session=s, start=a, end=b, phase=Phase.PREFILL)
                for s, a, b in spans or ((0, 0, 4),)
            ),
        )
        right = self._check.check(slots, context)
        rows = torch.arange(1.0, 1.0 + slots.numel()).view(-1, 1, 1).expand(-1, 1, 4)
        self._check.remember(rows, rows, slots, right, context)
        return right.tolist()

    @property
    def found(self) -> list[tuple]:
        return [(v.kind, v.positions, v.slots, v.owner) for v in self.log.violations]

    @property
    def written(self) -> list[int]:
        return self.states.digests[0].nonzero().flatten().tolist()


def test_rows_in_slots_of_theirs_are_right_and_remembered():
    checked = Checked()
    assert checked.store(torch.tensor([4, 5, 6, 7])) == [True] * 4
    assert checked.found == []
    assert checked.written == [4, 5, 6, 7]
    assert len(set(checked.states.digests[0, 4:8].tolist())) == 4


def test_two_rows_that_share_a_slot_are_named_both():
    """The owner of the slot is right and still a rival; the last row of three is in no pair."""
    checked = Checked()
    assert checked.store(torch.tensor([4, 6, 6, 7])) == [True, False, True, True]
    assert checked.found == [
        ("duplicate-slot-store", (1, 2), (6, 6), Owner(session=0, position=2)),
        ("foreign-store", (1,), (6,), Owner(session=0, position=2)),
    ]
    assert checked.written == [4, 6, 7]


def test_two_sessions_that_share_a_slot_of_neither():
    checked = Checked()
    assert checked.store(torch.tensor([20, 20]), (0, 1, 2), (1, 1, 2)) == [False, False]
    kinds = [kind for kind, *_ in checked.found]
    assert kinds == ["duplicate-slot-store", "unallocated-store"]


def test_different_wrong_slots_are_no_duplicates():
    """Every slot once, each of them another's: a permutation."""
    checked = Checked()
    assert checked.store(torch.tensor([5, 4, 7, 6])) == [False] * 4
    assert [(kind, slots) for kind, _, slots, _ in checked.found] == [
        ("foreign-store", (5, 4, 7, 6))
    ]
    assert checked.written == []


def test_a_free_slot_is_nobodys_and_so_not_anothers():
    checked = Checked()
    assert checked.store(torch.tensor([4, 5, 21, 7])) == [True, True, False, True]
    assert checked.found == [("unallocated-store", (2,), (21,), None)]


def test_a_slot_that_was_freed_names_its_last_owner():
    checked = Checked()
    checked.states.free(torch.tensor([9]))
    checked.store(torch.tensor([4, 5, 9, 7]))
    assert checked.found == [("unallocated-store", (2,), (9,), Owner(session=1, position=1))]


def test_each_wrong_row_is_of_one_kind():
    checked = Checked()
    slots = torch.tensor([2, 21, 9, 99])
    assert checked.store(slots) == [False] * 4
    assert [(kind, positions, used) for kind, positions, used, _ in checked.found] == [
        ("index-out-of-range", (3,), (99,)),
        ("sentinel-store", (0,), (2,)),
        ("unallocated-store", (1,), (21,)),
        ("foreign-store", (2,), (9,)),
    ]


@pytest.mark.parametrize("slot", [-1, -20, NUM_SLOTS])
def test_a_slot_just_outside_the_pool_is_of_no_other_kind(slot):
    checked = Checked()
    assert checked.store(torch.tensor([4, slot, 6, 7])) == [True, False, True, True]
    assert [(kind, used) for kind, _, used, _ in checked.found] == [("index-out-of-range", (slot,))]
    assert checked.written == [4, 6, 7]


@pytest.mark.parametrize(
    "slots",
    [
        torch.tensor([5]),  # would stand for all four rows
        torch.tensor([4, 5, 6]),
        torch.tensor([4, 5, 6, 7, 8]),
        torch.tensor([[4], [5], [6], [7]]),
        torch.tensor([[4, 5, 6, 7]]),
        torch.empty(0, dtype=torch.int64),
    ],
    ids=lambda slots: str(tuple(slots.shape)),
)
def test_slots_that_are_not_one_for_each_row_are_the_stores_to_refuse(slots):
    """No row is right, nothing is said of rows that cannot be told, nothing is remembered."""
    checked = Checked()
    right = checked.store(slots)
    assert torch.tensor(right).shape == slots.shape
    assert not torch.tensor(right).any()
    assert checked.found == []
    assert checked.written == []
    assert checked.states.status[4:12].tolist() == [ALLOCATED] * 8
