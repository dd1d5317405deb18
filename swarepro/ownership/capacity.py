"""What a call for slots must not leave behind: a part of what it needs."""

from collections.abc import Sequence

from swarepro.kvcache import SENTINEL_SLOT, KVGroup
from swarepro.ownership.books import Books
from swarepro.ownership.reporter import Reporter
from swarepro.ownership.violations import Owner
from swarepro.ownership.words import POOLS, be, positions_text
from swarepro.plan import Span


def check_exhaustion(before: Books, after: Books, spans: Sequence[Span], report: Reporter) -> None:
    """A call that needed more pages than it could get must have been refused.

    Positions without a slot are not enough: where pages were free, nobody was short of them, and
    what is wrong is whatever stores to the sentinel.
    """
    needed = sum(before.missing_pages(span.session, span.end) for span in spans)
    for group in before.num_pages if needed else ():
        available = before.available_pages(group)
        if needed <= available:
            continue
        for span in spans:
            without = _without_slots(after, span, group)
            if without:
                pool = POOLS[group]
                report(
                    "exhaustion",
                    f"{positions_text(span.session, without)} {be(without)} without"
                    f" {pool} slots: the call needed {needed * before.page_size} and"
                    f" {available * before.page_size} could be had, and it was not refused",
                    group=group,
                    positions=without,
                    user=Owner(session=span.session, position=without[0]),
                )
                break


def check_half_allocated(
    before: Books, after: Books, spans: Sequence[Span], report: Reporter
) -> None:
    """A call that was refused must have changed nothing."""
    for group in before.num_pages:
        for span in spans:
            had = _end(before, span.session)
            has = _end(after, span.session)
            if has > had:
                gained = list(range(had, has))
                report(
                    "exhaustion",
                    f"{positions_text(span.session, gained)} got {POOLS[group]} slots from a call"
                    " that was refused: half of it was done",
                    group=group,
                    positions=gained,
                    user=Owner(session=span.session, position=gained[0]),
                )
                break


def _without_slots(books: Books, span: Span, group: KVGroup) -> list[int]:
    if span.session not in books.tables:
        return list(range(span.start, span.end))
    slots = books.slots(span.session, group)[: span.end].tolist()
    slots += [SENTINEL_SLOT] * (span.end - len(slots))
    positions = range(span.start, span.end)
    return [position for position in positions if slots[position] == SENTINEL_SLOT]


def _end(books: Books, session: int) -> int:
    table = books.tables.get(session)
    return 0 if table is None else table.pages.numel() * books.page_size
