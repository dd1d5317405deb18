"""Exhaustion at every possible point of a script: refused as a whole, and the others go on."""

from collections.abc import Iterator

import pytest

from swarepro.errors import CapacityError
from swarepro.kvcache import SlotLifecycle
from swarepro.plan import Span
from tests.unit.kvcache import saboteurs
from tests.unit.kvcache.model import Model
from tests.unit.kvcache.owners import check_books, fresh, snapshot, swa_slots

WINDOW_LEFT = 5
AMPLE = 400
HOG = 77

# Frontiers that a step moves to, by session: chunks, decoded tokens, and both in one step.
SCRIPT: list[dict[int, int]] = [
    {0: 7},
    {0: 12, 1: 5},
    {1: 9, 2: 3},
    {0: 13, 1: 10, 2: 8},
    {2: 20},
    {0: 14, 1: 11, 2: 21},
    {1: 25},
    {0: 15, 1: 26, 2: 22},
    {0: 16, 2: 23},
    {0: 17, 1: 27, 2: 24},
    {0: 18, 1: 28, 2: 25},
]
FINAL = {0: 18, 1: 28, 2: 25}

both_pools = pytest.mark.parametrize("pool", ["full", "swa"])
paged = pytest.mark.parametrize("page_size", [1, 4])


class Pair:
    """An owner and the model of it, which do the same."""

    def __init__(
        self,
        page_size: int,
        *,
        pages: int = AMPLE,
        swa_pages: int = AMPLE,
        make: type[SlotLifecycle] = SlotLifecycle,
    ) -> None:
        sizes = {"pages": pages, "swa_pages": swa_pages}
        self.owner = fresh(**sizes, page_size=page_size, window_left=WINDOW_LEFT, make=make)
        self.model = Model.make(**sizes, page_size=page_size, window_left=WINDOW_LEFT)

    def step(self, wanted: dict[int, int]) -> bool:
        """Do a step and evict after it, or see it refused without a change; False = refused."""
        spans = tuple(
            Span(session=session, start=self.model.frontier.get(session, 0), end=end)
            for session, end in wanted.items()
        )
        if not self.model.fits(wanted):
            before = snapshot(self.owner)
            for call in (self.owner.check, self.owner.ensure):
                with pytest.raises(CapacityError):
                    call(spans)
                assert snapshot(self.owner) == before
            self.agree()
            return False
        self.owner.ensure(spans)
        self.model.compute(wanted)
        self.agree()
        for span in spans:
            window = swa_slots(self.owner, span.session, span.end)
            assert 0 not in window[max(0, span.start - WINDOW_LEFT) :]
        for span in spans if HOG not in wanted else ():
            self.owner.evict(span.session, max(0, span.end - WINDOW_LEFT))
            self.model.evict(span.session, max(0, span.end - WINDOW_LEFT))
        self.agree()
        return True

    def finish(self, session: int) -> None:
        self.owner.finish(session, keep=False)
        if session in self.model.frontier:
            self.model.finish(session, keep=False)
        self.agree()

    def agree(self) -> None:
        check_books(self.owner)
        assert list(self.owner.tables) == list(self.model.frontier)
        for session, frontier in self.model.frontier.items():
            for name, slots in (
                ("full", self.owner.full_slots(session, frontier).tolist()),
                ("swa", swa_slots(self.owner, session, frontier)),
            ):
                owned = self.model.owner[name]
                assert slots == [owned.get((session, p), 0) for p in range(frontier)]


def missing(page_size: int, index: int) -> int:
    """Pages that step ``index`` takes from each pool."""
    pair = Pair(page_size)
    for wanted in SCRIPT[:index]:
        pair.step(wanted)
    lacking = (len(pair.model.lacking(s, end)) for s, end in SCRIPT[index].items())
    return sum(lacking) // page_size


def needed(page_size: int, pool: str) -> int:
    """The smallest pool that serves the whole script."""
    for pages in range(1, AMPLE):
        if not any(point for point in refusals(sized(page_size, pool, pages))):
            return pages
    raise AssertionError("no pool is large enough")


def sized(page_size: int, pool: str, pages: int, make: type[SlotLifecycle] = SlotLifecycle) -> Pair:
    sizes = {"pages" if pool == "full" else "swa_pages": pages}
    return Pair(page_size, **sizes, make=make)


def refusals(pair: Pair) -> Iterator[tuple[int, int]]:
    """Run the script; yield (step, session) where a step is refused and this session ends for it.

    The one that wants most ends, and the step is tried again for the others.
    """
    ended: set[int] = set()
    for index, step in enumerate(SCRIPT):
        wanted = {session: end for session, end in step.items() if session not in ended}
        while wanted and not pair.step(wanted):
            victim = max(wanted, key=lambda session: (wanted[session], session))
            pair.finish(victim)
            ended.add(victim)
            del wanted[victim]
            yield index, victim
    for session, frontier in FINAL.items():
        assert pair.model.frontier.get(session) == (None if session in ended else frontier)


@paged
def test_the_script_needs_less_of_the_swa_pool_than_of_the_full_pool(page_size) -> None:
    """The script is worth running: it evicts, and without that it needs as much of both."""
    positions = sum(-(-end // page_size) for end in FINAL.values())
    assert needed(page_size, "full") == positions
    assert needed(page_size, "swa") < positions * 3 // 4


@paged
@both_pools
def test_every_pool_that_is_too_small_refuses_a_step_and_serves_the_others(page_size, pool) -> None:
    enough = needed(page_size, pool)
    points: set[int] = set()
    survivors = []
    for pages in range(1, enough):
        pair = sized(page_size, pool, pages)
        ended = dict(refusals(pair))
        assert ended
        points |= set(ended)
        survivors.append(len(pair.model.frontier))
        for session in list(pair.model.frontier):
            pair.finish(session)
        counts = check_books(pair.owner)
        assert all(free > 0 and not any(rest) for free, *rest in counts.values())
    assert survivors[-1] == 2  # a page is wanting: one session ends, two go on to their end
    assert set(survivors) == {0, 1, 2}
    assert len(points) >= 5


@paged
@both_pools
@pytest.mark.parametrize("index", range(len(SCRIPT)))
def test_every_step_that_takes_pages_is_refused_when_they_are_gone(page_size, pool, index) -> None:
    """Another session holds all but too few pages; when it ends, the script goes on to its end."""
    for left in range(missing(page_size, index)):
        total = 40 * 4 // page_size
        pair = sized(page_size, pool, total)
        for wanted in SCRIPT[:index]:
            assert pair.step(wanted)
        free = pair.owner.full if pool == "full" else pair.owner.swa
        assert free is not None
        assert pair.step({HOG: (free.num_free - left) * page_size})
        assert free.num_free == left
        assert not pair.step(SCRIPT[index])
        pair.finish(HOG)
        for wanted in SCRIPT[index:]:
            assert pair.step(wanted)
        assert pair.model.frontier == FINAL


def test_most_steps_take_pages() -> None:
    """The control of the test above: it would pass if no step took any."""
    taking = [index for index in range(len(SCRIPT)) if missing(1, index)]
    assert taking == list(range(len(SCRIPT)))
    assert len([index for index in range(len(SCRIPT)) if missing(4, index)]) >= 7


@both_pools
@pytest.mark.parametrize("kind", [saboteurs.HalfAllocates, saboteurs.LooksAtTheFullPoolOnly])
def test_an_owner_that_allocates_half_is_caught(pool: str, kind: type[SlotLifecycle]) -> None:
    caught = []
    for pages in range(1, needed(4, pool)):
        try:
            list(refusals(sized(4, pool, pages, kind)))
        except (AssertionError, pytest.fail.Exception, CapacityError):
            caught.append(pages)
    assert bool(caught) == (pool == "swa" or kind is saboteurs.HalfAllocates)
