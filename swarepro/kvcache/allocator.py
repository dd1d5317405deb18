"""Hands out pages of one pool, in a fixed order."""

import torch

from swarepro.errors import CapacityError


class PageAllocator:
    """A free list of pages 1, 2, ..., num_pages; page 0 holds the sentinel and is never on it.

    Slots of page p are ``[p * page_size, (p + 1) * page_size)``.

    Attributes:
        num_pages: pages that can be handed out.
        page_size: slots of a page.
        free_list: ``[num_free]`` int64, in the order in which they will be handed out; a page that
            is freed goes to its end.
    """

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        self.free_list = torch.empty(0, dtype=torch.int64)
        self.rebuild()

    @property
    def capacity(self) -> int:
        """Slots that can be handed out."""
        return self.num_pages * self.page_size

    @property
    def num_free(self) -> int:
        """Pages on the free list."""
        return self.free_list.numel()

    def rebuild(self) -> None:
        """Make every page free again, in the order 1, 2, 3, ..."""
        self.free_list = torch.arange(1, self.num_pages + 1)

    def allocate(self, count: int) -> torch.Tensor:
        """Hand out ``count`` pages as ``[count]`` int64.

        Raises:
            CapacityError: fewer are free; nothing was handed out.
        """
        if count > self.num_free:
            raise CapacityError(f"{count} pages are needed and {self.num_free} are free")
        pages, self.free_list = self.free_list[:count].clone(), self.free_list[count:]
        return pages

    def free(self, pages: torch.Tensor) -> None:
        """Put ``pages [N]`` int64 at the end of the free list, in their order."""
        self.free_list = torch.cat([self.free_list, pages])


def num_pages_for(num_positions: int, page_size: int) -> int:
    """Return how many pages hold the first ``num_positions`` positions of a session."""
    return -(-num_positions // page_size)


def slots_of(pages: torch.Tensor, page_size: int) -> torch.Tensor:
    """Return the slots ``[N * page_size]`` int64 of ``pages [N]``, page after page."""
    return (pages[:, None] * page_size + torch.arange(page_size)).flatten()
