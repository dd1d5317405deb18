"""Watches the reserved page: nobody owns it, so nobody may write it."""

from collections.abc import Sequence

import torch

from swarepro.kvcache import KVGroup
from swarepro.ownership.reporter import Reporter
from swarepro.ownership.rows import RowDigests
from swarepro.ownership.words import positions_text, slots_text
from swarepro.plan import Span
from swarepro.runtime.parts import StoreContext


class ReservedPage:
    """The rows of page 0 of each pool layer, as they were before a store.

    A store's own slots are checked where it is made; this sees what it writes beside them.

    Args:
        page_size: of the pools.
        row_digests: maps rows ``[N, 2, K, D]`` to ``[N]`` int64.
    """

    def __init__(self, page_size: int, row_digests: RowDigests, report: Reporter) -> None:
        self._page_size = page_size
        self._row_digests = row_digests
        self._report = report
        self._before: torch.Tensor | None = None

    def look(self, k_cache: torch.Tensor, v_cache: torch.Tensor, group: KVGroup) -> None:
        """Remember the rows of ``k_cache, v_cache [S, K, D]`` before a store."""
        known = self._report.knows("sentinel-store", group)
        self._before = None if known else self._digests(k_cache, v_cache)

    def compare(self, k_cache: torch.Tensor, v_cache: torch.Tensor, context: StoreContext) -> None:
        """Report rows that a store changed.

        None of them is its own slot: such a one was reported before the store, and then this looks
        at nothing.
        """
        if self._before is None:
            return
        changed = self._before != self._digests(k_cache, v_cache)
        if not bool(changed.any()):
            return
        written = changed.nonzero().flatten().tolist()
        self._report(
            "sentinel-store",
            f"the store of {_stored(context.spans)} also wrote"
            f" {slots_text(context.group, written)}, the sentinel's: rows that nobody owns, padding"
            " for example",
            layer=context.layer,
            group=context.group,
            slots=written,
        )

    def _digests(self, k_cache: torch.Tensor, v_cache: torch.Tensor) -> torch.Tensor:
        rows = slice(0, self._page_size)
        return self._row_digests(torch.stack([k_cache[rows], v_cache[rows]], dim=1)).cpu()


def _stored(spans: Sequence[Span]) -> str:
    """Return e.g. "session 0 position 7 and session 2 positions 0 to 4"."""
    named = [positions_text(x.session, range(x.start, x.end)) for x in spans[:_MOST]]
    if len(spans) > _MOST:
        named.append(f"{len(spans) - _MOST} more")
    return " and ".join([", ".join(named[:-1]), named[-1]] if named[1:] else named)


_MOST = 3
"""Spans that a message names."""
