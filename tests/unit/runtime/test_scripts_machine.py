"""Random scripts through the real runtime, against a dictionary model of who owns how much.

No violation, exact accounts after every step, and the bytes of every session as alone, in roomy
pools and in the smallest in which the script runs. With a fault of class A where it matters: found.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import structs

from swarepro.checkpoint.config import LayerKind
from swarepro.errors import SessionError
from swarepro.faults import FAULTS
from swarepro.plan import Finish, RunPlan
from tests.unit.runtime.drawn import Script, scripts
from tests.unit.runtime.scripted import (
    ALL,
    OUTPUT,
    RESET,
    SLOT_NAMES,
    STAGES,
    WINDOW,
    WINDOW_LEFT,
    MemorySink,
    Pools,
    assert_as_alone,
    batch,
    decode,
    finish,
    prefill,
    prompt,
    run_plan,
    script_plan,
    set_up,
    small_checkpoint,
)
from tests.unit.runtime.slot_books import SlotBooks, books_of, smallest

COUNTS = ("capacity", "free", "live", "evictable", "reserved", "positions")


def stage_books(plan) -> list[SlotBooks]:
    """Return the model of each stage of a plan."""
    kinds = [layer.kind for layer in small_checkpoint().config.layers]
    return [
        books_of(
            plan,
            window_left=WINDOW_LEFT,
            sliding=LayerKind.SLIDING in kinds[stage.layer_start : stage.layer_end],
        )
        for stage in plan.stages
    ]


class Accounting:
    """Compares the accounts of a run with the model after every step."""

    def __init__(self, plan):
        self.books = stage_books(plan)
        self.steps = 0

    def __call__(self, execution, step) -> None:
        self.steps += 1
        for books, accounts in zip(self.books, execution.accounts(), strict=True):
            if step.reset:
                books.reset()
            for action in step.actions:
                books.act(action)
            books.begin(step.spans)
            books.end(step.spans)
            assert [account.group for account in accounts] == list(books.groups)
            for account in accounts:
                found = {name: getattr(account, name) for name in COUNTS}
                assert found == books.account(account.group), (step, account.group)
                assert account.is_exact
                owned = [slot for _, _, slots in account.owners for slot in slots]
                assert len(set(owned)) == len(owned)
                assert 0 not in owned


def check(drawn: Script) -> None:
    """Run a script and assert all that has to hold."""
    plan = drawn.plan()
    accounting = Accounting(plan)
    ran = run_plan(plan, drawn.stages, on_step=accounting)
    assert accounting.steps == len(plan.steps)
    assert ran.outcome.violations == ()
    assert_as_alone(plan, ran, drawn.stages)


@settings(max_examples=30)
@given(drawn=scripts())
def test_any_script_in_the_smallest_pools(drawn):
    check(drawn.tight())


@settings(max_examples=10)
@given(drawn=scripts())
def test_any_script_in_roomy_pools(drawn):
    check(drawn)


@settings(max_examples=15)
@given(drawn=scripts())
def test_a_page_less_than_the_smallest_is_refused(drawn):
    """The smallest is the smallest: one page less of either pool, and a step is refused."""
    tight = drawn.tight()
    size = tight.pools.page_size
    plan = tight.plan()
    for full, swa in ((size, 0), (0, size)):
        smaller = replace(plan, capacity=plan.capacity - full, swa_capacity=plan.swa_capacity - swa)
        with pytest.raises(SessionError):
            run_plan(smaller, tight.stages, capture=OUTPUT)


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_a_small_swa_pool_serves_a_prompt_of_any_length(page_size):
    """Window, chunk and less than three pages are enough, whatever the prompt's length.

    A page that no query sees is kept as a margin; window and chunk begin and end within a page.
    """
    chunk = 6
    script = (*(batch(prefill(0, chunk)) for _ in range(20)), batch(decode(0), times=9))
    prompts = (prompt(20 * chunk, 1),)
    pools = Pools(page_size=page_size, evict=True)
    _, swa = smallest(script_plan(script, prompts, pools), window_left=WINDOW_LEFT)
    assert swa < WINDOW + chunk + 3 * page_size
    check(Script(script=script, prompts=prompts, pools=pools, stages=STAGES[1]).tight())
    without = Pools(page_size=page_size)
    _, all_rows = smallest(script_plan(script, prompts, without), window_left=WINDOW_LEFT)
    assert all_rows >= 20 * chunk + 9


def test_the_accounts_of_a_leak_are_seen():
    """The control of the accounting."""
    script = (batch(prefill(0, 5)), finish(0), batch(prefill(1, 4)))
    plan = script_plan(script, (prompt(5, 1), prompt(4, 2)), Pools(capacity=16, swa_capacity=16))
    run_plan(plan, on_step=Accounting(plan))
    with pytest.raises(AssertionError):
        run_plan(plan, on_step=Accounting(plan), faults=("finish-leaks-slots",))


# Faults of class A, each in a script that gives it the occasion to matter.


def chunked(session, rows, chunk):
    """Return the steps that prefill ``rows`` rows."""
    return [batch(prefill(session, min(chunk, rows - start))) for start in range(0, rows, chunk)]


@st.composite
def one_after_another(draw, *, evict=False):
    """Two sessions that end, and a third; with ``evict`` long enough to have tombstones."""
    page_size = draw(st.sampled_from([1, 4, 16]))
    chunk = draw(st.integers(5 if evict else 1, 9))
    least = WINDOW + 2 * page_size + chunk if evict else 1
    rows = [draw(st.integers(least, least + 8)) for _ in range(3)]
    script = []
    for session in range(3):
        script += chunked(session, rows[session], chunk)
        script += [batch(decode(session))] * draw(st.integers(0, 2))
        if session < 2:
            script.append(finish(session))
    prompts = tuple(prompt(count, 1 + session) for session, count in enumerate(rows))
    pools = Pools(page_size=page_size, evict=evict)
    return Script(script=tuple(script), prompts=prompts, pools=pools, stages=draw(STAGE))


@st.composite
def with_resets(draw):
    """Two sessions and a reset between them; the first one's mapping is there when it comes."""
    page_size = draw(st.sampled_from([1, 4, 16]))
    chunk = draw(st.integers(1, 9))
    rows = [draw(st.integers(1, 20)) for _ in range(2)]
    script = [*chunked(0, rows[0], chunk), RESET, *chunked(1, rows[1], chunk), batch(decode(1))]
    prompts = (prompt(rows[0], 1), prompt(rows[1], 2))
    pools = Pools(page_size=page_size)
    return Script(script=tuple(script), prompts=prompts, pools=pools, stages=draw(STAGE))


@st.composite
def short_of_slots(draw):
    """Sessions whose last chunk does not fit into the SWA pool."""
    drawn = draw(one_after_another())
    _, swa = smallest(drawn.plan(), window_left=WINDOW_LEFT)
    assume(swa > drawn.pools.page_size)
    return replace(drawn, pools=replace(drawn.pools, swa_capacity=swa - drawn.pools.page_size))


@st.composite
def wrapping(draw):
    """The same session again and again, in pools that it fills: the SWA pool has come round."""
    page_size = draw(st.sampled_from([1, 4]))
    chunk = draw(st.integers(3, 6))
    rows = WINDOW + 3 * page_size + chunk + draw(st.integers(0, 9))
    script = [*chunked(0, rows, chunk), finish(0), *chunked(1, rows, chunk), finish(1)]
    script += chunked(2, rows, chunk)
    prompts = tuple(prompt(rows, 1 + session) for session in range(3))
    pools = Pools(page_size=page_size, evict=True)
    drawn = Script(script=tuple(script), prompts=prompts, pools=pools, stages=draw(STAGE))
    return drawn.tight()


STAGE = st.sampled_from(STAGES)


TABLES = structs.replace(ALL, points=SLOT_NAMES)


def every_step(plan, refused):
    return [step.index for step in plan.steps]


def new_pages(plan, refused):
    """Return the steps in which a session gets a page."""

    def pages(position):
        return -(-position // plan.page_size)

    return [
        step.index
        for step in plan.steps
        if any(pages(span.end) > pages(span.start) for span in step.spans)
    ]


def finishes(plan, refused):
    return [
        step.index
        for step in plan.steps
        if any(isinstance(action, Finish) for action in step.actions)
    ]


def resets(plan, refused):
    return [step.index for step in plan.steps if step.reset]


def refusal(plan, refused):
    return [refused]


@dataclass(frozen=True, kw_only=True)
class Occasion:
    """Where a fault matters.

    Attributes:
        scripts: that give it the occasion.
        kinds: of the first violation; any other names another cause.
        when: maps a plan, and the step that is refused without the fault, to the steps at which it
            matters.
        exact: the first violation is found at the first such step; else in it or later.
        by_chance: the slots that it gives may be the right ones.
    """

    scripts: st.SearchStrategy[Script]
    kinds: frozenset[str]
    when: Callable[[RunPlan, int], list[int]]
    exact: bool = True
    by_chance: bool = False


def occasion(scripts, when, *kinds, **fields):
    return Occasion(scripts=scripts, when=when, kinds=frozenset(kinds), **fields)


OCCASIONS = {
    "skip-swa-allocation": occasion(one_after_another(), new_pages, "sentinel-store"),
    "allocate-after-metadata": occasion(one_after_another(), new_pages, "sentinel-store"),
    "swa-rows-alias-slot-0": occasion(one_after_another(), every_step, "sentinel-store"),
    "padding-rows-stored": occasion(one_after_another(), every_step, "sentinel-store"),
    "free-pages-twice": occasion(one_after_another(), finishes, "double-free"),
    "reset-zeroes-free-list": occasion(with_resets(), resets, "free-of-sentinel"),
    "ignore-exhaustion": occasion(short_of_slots(), refusal, "exhaustion"),
    "finish-keeps-mapping": occasion(one_after_another(), finishes, "free-while-mapped"),
    "stale-mapping-survives-reset": occasion(with_resets(), resets, "free-while-mapped"),
    "skip-reset": occasion(with_resets(), resets, "live-after-reset"),
    # Tombstones of before it was there have no mapping: their slots are freed as the sentinel's.
    "tombstone-keeps-mapping": occasion(
        one_after_another(evict=True),
        finishes,
        "free-while-mapped",
        "free-of-sentinel",
        exact=False,
    ),
    "finish-leaks-slots": occasion(one_after_another(), finishes, "mapping-lost"),
    "free-unmapped-slots": occasion(one_after_another(evict=True), finishes, "free-of-sentinel"),
    # A full slot that the mapping was once said to lead to looks like an old translation.
    "full-slots-on-swa-pool": occasion(
        wrapping(),
        every_step,
        "index-out-of-range",
        "stale-translation",
        exact=False,
        by_chance=True,
    ),
    "cached-translation": occasion(
        wrapping(), every_step, "stale-translation", exact=False, by_chance=True
    ),
}


def test_every_fault_of_class_a_has_an_occasion():
    known = {name for name, fault in FAULTS if fault.mechanism.startswith("A")}
    assert known == OCCASIONS.keys()


def inject(execution, name: str) -> None:
    """Put a fault where it would be from the start: around the part, and inside the shadow."""
    fault = FAULTS.get(name)
    for stage in execution._stages:
        watched = getattr(stage.parts, fault.part)
        inner = replace(stage.parts, **{fault.part: watched._inner})
        watched._inner = getattr(fault.wrap(inner), fault.part)


def watched(drawn: Script, fault: str | None = None, at: int = 0):
    """Run a script to its end or to an error, with a fault from step ``at`` on.

    Return its violations, its index tables, and how many steps were finished.
    """
    plan = drawn.plan()
    sink = MemorySink([])
    execution = set_up(plan, drawn.stages, sink, capture=TABLES)
    done = []
    try:
        execution.run_steps(slice(0, at), on_step=done.append)
        assert execution.log.violations == ()
        if fault is not None:
            inject(execution, fault)
        execution.run_steps(slice(at, None), on_step=done.append)
    except SessionError:
        pass
    for shadow in execution._shadows:
        shadow.end()
    tables = [r.digest for r in sink.records if r.name in SLOT_NAMES]
    return execution.log.violations, tables, len(done)


@pytest.mark.parametrize("fault", OCCASIONS)
def test_a_fault_of_class_a_is_found_whenever_it_begins(fault):
    """By its own kind, and at the first step in which it matters."""
    occasion = OCCASIONS[fault]

    @settings(max_examples=6)
    @given(drawn=occasion.scripts, data=st.data())
    def found(drawn, data):
        plan = drawn.plan()
        healthy, tables, done = watched(drawn)
        assert healthy == ()
        assert (done < len(plan.steps)) is (fault == "ignore-exhaustion")
        steps = occasion.when(plan, done)
        at = data.draw(st.integers(0, steps[-1]), label="at")
        violations, faulty, _ = watched(drawn, fault, at)
        if occasion.by_chance:
            assume(faulty != tables)
        assert violations, "nothing was found"
        first = violations[0]
        assert first.kind in occasion.kinds, first.message
        assert first.step >= at
        if occasion.exact:
            assert first.step == next(step for step in steps if step >= at), first.message

    found()


@pytest.mark.parametrize("fault", ["finish-keeps-mapping", "skip-reset", "free-unmapped-slots"])
def test_a_fault_that_begins_after_its_last_occasion_is_silent(fault):
    """The control of the occasions: what is found is what was done, not that a wrapper is there."""
    occasion = OCCASIONS[fault]

    @settings(max_examples=3)
    @given(drawn=occasion.scripts)
    def silent(drawn):
        plan = drawn.plan()
        at = occasion.when(plan, 0)[-1] + 1
        assume(at < len(plan.steps))
        assert watched(drawn, fault, at)[0] == ()

    silent()
