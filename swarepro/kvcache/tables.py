"""Where one session's positions lie."""

from dataclasses import dataclass, field

import torch


def _no_pages() -> torch.Tensor:
    return torch.empty(0, dtype=torch.int64)


@dataclass(slots=True)
class SessionTable:
    """The block table of one session and how far it is used.

        positions   0 ........ evicted ........ allocated ........ len(pages) * page_size
        full group  | own a full slot                             | reserved: the page's rest |
        sliding     | own none: tombstones | own an SWA slot      | reserved                  |

    Attributes:
        pages: ``[P]`` int64, full page by logical page.
        allocated: frontier; positions below it own slots.
        evicted: positions below it own no SWA slot any more; a multiple of the page size.
        kept: finished, and kept for reuse; its slots are evictable.
    """

    pages: torch.Tensor = field(default_factory=_no_pages)
    allocated: int = 0
    evicted: int = 0
    kept: bool = False
