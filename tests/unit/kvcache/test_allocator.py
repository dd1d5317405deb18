"""The free list of pages: its order, and that free + handed out is everything."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swarepro.errors import CapacityError
from swarepro.kvcache import PageAllocator, num_pages_for, slots_of

PAGE_SIZES = [1, 3, 4, 16, 64]


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_pages_come_in_order_and_page_0_never(page_size: int) -> None:
    pool = PageAllocator(5, page_size)
    assert (pool.capacity, pool.num_free) == (5 * page_size, 5)
    assert pool.allocate(2).tolist() == [1, 2]
    assert pool.allocate(0).tolist() == []
    assert pool.allocate(3).tolist() == [3, 4, 5]
    assert pool.num_free == 0


def test_what_is_freed_is_handed_out_last_in_the_order_in_which_it_was_freed() -> None:
    pool = PageAllocator(5, 4)
    pool.allocate(4)
    pool.free(torch.tensor([3, 1]))
    assert pool.free_list.tolist() == [5, 3, 1]
    assert pool.allocate(3).tolist() == [5, 3, 1]


def test_too_many_are_refused_and_nothing_is_handed_out() -> None:
    pool = PageAllocator(5, 4)
    pool.allocate(3)
    with pytest.raises(CapacityError, match="3 pages are needed and 2 are free"):
        pool.allocate(3)
    assert pool.free_list.tolist() == [4, 5]
    assert pool.allocate(2).tolist() == [4, 5]


def test_pages_that_were_handed_out_are_not_a_view_of_the_free_list() -> None:
    pool = PageAllocator(3, 1)
    before = pool.free_list
    pages = pool.allocate(2)
    before.zero_()
    assert pages.tolist() == [1, 2]


@pytest.mark.parametrize("times", [1, 2])
def test_rebuilding_makes_every_page_free_in_the_first_order(times: int) -> None:
    pool = PageAllocator(4, 3)
    pool.free(pool.allocate(3).flip(0))
    for _ in range(times):
        pool.rebuild()
    assert pool.free_list.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_slots_of_pages(page_size: int) -> None:
    slots = slots_of(torch.tensor([2, 1]), page_size)
    assert slots.dtype == torch.int64
    assert slots.tolist() == [
        *range(2 * page_size, 3 * page_size),
        *range(page_size, 2 * page_size),
    ]
    assert slots_of(torch.empty(0, dtype=torch.int64), page_size).tolist() == []


def test_with_pages_of_one_slot_a_page_is_its_slot() -> None:
    assert slots_of(torch.tensor([1, 2, 7]), 1).tolist() == [1, 2, 7]


@given(st.integers(0, 20), st.lists(st.integers(-6, 6), max_size=20))
def test_free_and_handed_out_are_everything_whatever_happens(num_pages, moves) -> None:
    """A positive move allocates, a negative one frees the oldest that are out."""
    pool = PageAllocator(num_pages, 2)
    out: list[int] = []
    for move in moves:
        if move > pool.num_free:
            with pytest.raises(CapacityError):
                pool.allocate(move)
        elif move > 0:
            out += pool.allocate(move).tolist()
        else:
            pool.free(torch.tensor(out[:-move], dtype=torch.int64))
            out = out[-move:]
        assert sorted([*pool.free_list.tolist(), *out]) == list(range(1, num_pages + 1))


@pytest.mark.parametrize(("positions", "pages"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_pages_of_positions(positions: int, pages: int) -> None:
    assert num_pages_for(positions, 4) == pages
