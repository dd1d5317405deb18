"""The copy of the books takes nothing for a slot that is none."""

import pytest
import torch

from swarepro.kvcache import KVGroup, SlotLifecycle
from swarepro.ownership.books import Books
from swarepro.plan import Span


def lifecycle() -> SlotLifecycle:
    owner = SlotLifecycle(capacity=16, swa_capacity=8, page_size=2, window_left=3)
    owner.ensure([Span(session=0, start=0, end=3)])
    return owner


@pytest.mark.parametrize("junk", [-1, 0, 1, 10, (1 << 32) + 4])
def test_a_mapping_to_no_slot(junk):
    owner = lifecycle()
    owner.mapping[3] = junk
    books = Books(owner)
    assert books.slots(0, KVGroup.FULL).tolist() == [2, 3, 4, 5]
    assert books.slots(0, KVGroup.SLIDING).tolist() == [2, 0, 4, 5]


def test_a_table_with_pages_that_are_none():
    owner = lifecycle()
    owner.mapping[:2] = 7  # what the mapping says of the reserved page is nobody's
    owner.tables[0].pages = torch.tensor([0, 1, 99, -2])
    for group in KVGroup:
        assert Books(owner).slots(0, group).tolist() == [0, 0, 2, 3, 0, 0, 0, 0]


def test_a_copy_is_the_same_until_something_changes():
    owner = lifecycle()
    books = Books(owner)
    assert books.same_as(Books(owner))
    owner.tables[0].evicted = 2
    assert not books.same_as(Books(owner))
    assert books.tables[0].evicted == 0


def test_pages_that_a_call_can_get():
    owner = lifecycle()
    owner.ensure([Span(session=1, start=0, end=4)])
    owner.evict(1, 4)
    assert [Books(owner).available_pages(group) for group in KVGroup] == [4, 1]
    owner.finish(1, keep=True)
    assert [Books(owner).available_pages(group) for group in KVGroup] == [6, 2]
    assert Books(owner).missing_pages(0, 9) == 3
    assert Books(owner).missing_pages(5, 1) == 1
