"""What a session computes does not depend on what else is in the batch, nor on where it lies.

On the eager route to the byte, at every boundary. Batched routes and other cuts round otherwise:
values are of order one, in float32, and agree within 1e-4 (see test_triton_routes.py).
"""

from dataclasses import replace
from importlib.util import find_spec

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from swarepro import build
from swarepro.capture import MemorySink
from tests.unit.runtime.drawn import scripts
from tests.unit.runtime.scripted import (
    ALL,
    STAGES,
    Pools,
    assert_as_alone,
    batch,
    cold,
    decode,
    differing,
    finish,
    prefill,
    prompt,
    reuse,
    run_plan,
    script_plan,
    set_up,
)

PROMPTS = (prompt(37, 1), prompt(21, 2), prompt(5, 3))
LIMIT = 1e-4

INTERLEAVED = (
    batch(prefill(0, 9)),
    batch(prefill(1, 10)),
    batch(prefill(0, 20)),
    batch(prefill(2, 5)),
    batch(prefill(0, 8)),
    batch(decode(2)),
    batch(decode(0)),
    batch(prefill(1, 11)),
    batch(decode(2)),
    batch(decode(1)),
    batch(decode(0)),
)
MIXED = (
    batch(prefill(0, 9), prefill(1, 10)),
    batch(prefill(2, 5), prefill(0, 20)),
    batch(prefill(0, 8), decode(2), prefill(1, 11)),
    batch(decode(0), decode(1), decode(2), times=2),
    batch(decode(2), decode(0)),
)
ENDING = (
    batch(prefill(2, 3)),
    batch(prefill(0, 20), prefill(2, 2)),
    finish(2),
    batch(prefill(1, 10), prefill(0, 17)),
    batch(decode(0), prefill(1, 11)),
    finish(0),
    batch(decode(1), times=9),
)
SCRIPTS = {"interleaved": INTERLEAVED, "mixed": MIXED, "ending": ENDING}
PAGES = [(1, False), (1, True), (3, True), (4, True), (16, False), (16, True), (64, True)]


def reordered(script):
    """The same steps, each with its spans in the opposite order."""
    return tuple(msgspec.structs.replace(entry, rows=entry.rows[::-1]) for entry in script)


@pytest.mark.parametrize(("page_size", "evict"), PAGES)
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_session_gives_the_bytes_that_it_gives_alone(name, page_size, evict):
    pools = Pools(page_size=page_size, evict=evict)
    for stages in STAGES[:2]:
        for script in (SCRIPTS[name], reordered(SCRIPTS[name])):
            plan = script_plan(script, PROMPTS, pools, stages)
            ran = run_plan(plan, stages)
            assert ran.outcome.violations == ()
            assert_as_alone(plan, ran, stages)


@settings(max_examples=25)
@given(drawn=scripts())
def test_any_script_gives_each_session_the_bytes_that_it_gives_alone(drawn):
    plan = drawn.plan()
    assert_as_alone(plan, run_plan(plan, drawn.stages), drawn.stages)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_in_every_dtype(dtype):
    plan = script_plan(MIXED, PROMPTS, Pools(page_size=4, evict=True))
    assert_as_alone(plan, run_plan(plan, dtype=dtype), dtype=dtype)


@pytest.fixture
def two_threads():
    """Let torch compute with two threads, whatever the environment says."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def test_with_more_than_one_thread(two_threads):
    assert torch.get_num_threads() == 2
    plan = script_plan(MIXED, PROMPTS, Pools(page_size=4, evict=True), STAGES[1])
    assert_as_alone(plan, run_plan(plan, STAGES[1]), STAGES[1])


def test_rows_that_are_projected_together_are_seen(monkeypatch):
    """The control: with all spans in one block the eager route gives other bytes."""
    plan = script_plan(MIXED, PROMPTS, Pools())
    build_route = build.build_route
    monkeypatch.setattr(
        build, "build_route", lambda *given: replace(build_route(*given), together=True)
    )
    ran = run_plan(plan)
    monkeypatch.undo()
    assert set(differing(plan, ran)) == {0, 1, 2}


FAULTY = {
    # The third session gets the first one's pages, and the first of them once more.
    "free-pages-twice": (
        Pools(capacity=14, swa_capacity=14),
        (prompt(5, 1), prompt(5, 2), prompt(10, 3)),
        (batch(prefill(0, 5)), finish(0), batch(prefill(1, 5)), finish(1), batch(prefill(2, 10))),
    ),
    "evict-too-early": (
        Pools(page_size=4, evict=True),
        PROMPTS[:1],
        (batch(prefill(0, 20)), batch(prefill(0, 17)), batch(decode(0))),
    ),
    "swa-ring-wraps-early": (
        Pools(),
        PROMPTS[:1],
        (batch(prefill(0, 37)), batch(decode(0), times=2)),
    ),
}


@pytest.mark.parametrize("name", FAULTY)
def test_a_fault_is_seen(name):
    pools, prompts, script = FAULTY[name]
    plan = script_plan((*script, batch(decode(len(prompts) - 1))), prompts, pools)
    assert differing(plan, run_plan(plan)) == {}
    assert differing(plan, run_plan(plan, faults=(name,))) != {}


# A prefix that was computed before.

TURNS = (prompt(33, 1), prompt(40, 1), prompt(36, 1))
WARM = (
    batch(prefill(0, 16)),
    batch(prefill(0, 16)),
    batch(prefill(0, 1)),
    finish(0, keep=True),
    reuse(1, 0, 32),
    batch(prefill(1, 8)),
    batch(decode(1), times=2),
)
CHAIN = (*WARM, finish(1, keep=True), reuse(2, 1, 32), batch(prefill(2, 4)), batch(decode(2)))


@pytest.mark.parametrize("evict", [False, True])
@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("stages", STAGES)
def test_a_warm_prefix_gives_the_bytes_of_a_cold_one(stages, page_size, evict):
    pools = Pools(page_size=page_size, evict=evict)
    # With eviction and small pages the first session's window has moved on when the third comes.
    script, prompts = (CHAIN, TURNS) if not evict or page_size == 16 else (WARM, TURNS[:2])
    plan = script_plan(script, prompts, pools, stages)
    ran = run_plan(plan, stages)
    assert ran.outcome.violations == ()
    assert_as_alone(plan, ran, stages)
    for session in range(1, len(prompts)):
        assert warm_differs(plan, ran, session, stages) == []


@settings(max_examples=10)
@given(data=st.data())
def test_any_edge_that_ends_a_page(data):
    """Chunks of whole pages, then a rest; a prefix that ends where one of the chunks ends."""
    page_size = data.draw(st.sampled_from([1, 4, 16]))
    pages = data.draw(st.lists(st.integers(1, max(1, 12 // page_size)), min_size=1, max_size=3))
    chunks = [count * page_size for count in pages]
    rows = sum(chunks[: data.draw(st.integers(1, len(chunks)))])
    rest = data.draw(st.integers(1, 6))
    stages = data.draw(st.sampled_from(STAGES))
    script = (
        *(batch(prefill(0, count)) for count in (*chunks, 1)),
        finish(0, keep=True),
        reuse(1, 0, rows),
        batch(prefill(1, rest)),
        batch(decode(1)),
    )
    prompts = (prompt(sum(chunks) + 1, 1), prompt(rows + rest, 1))
    plan = script_plan(script, prompts, Pools(page_size=page_size), stages)
    assert warm_differs(plan, run_plan(plan, stages), 1, stages) == []


def warm_differs(plan, ran, session, stages):
    """Return where a session that took over a prefix differs from one that computed it."""
    by_itself = cold(plan, session)
    expected = run_plan(by_itself, stages).of(session, by_itself)
    warm = ran.of(session, plan)
    assert warm
    assert warm.keys() < expected.keys()
    return [key for key, digest in warm.items() if expected[key] != digest]


def test_a_prefix_of_the_wrong_rows_is_seen():
    """The first session goes on for 8 positions before a prefix of it is taken over."""
    script = (
        *WARM[:3],
        batch(decode(0), times=8),
        finish(0, keep=True),
        reuse(1, 0, 32),
        batch(prefill(1, 8)),
    )
    plan = script_plan(script, TURNS[:2], Pools(page_size=4))
    assert warm_differs(plan, run_plan(plan), 1, None) == []
    assert warm_differs(plan, run_plan(plan, faults=("ring-prefix-reuse",)), 1, None) != []


# Other orders of summation: batched routes, other cuts.


class KeepingSink(MemorySink):
    """Keeps values, too."""

    def __init__(self):
        super().__init__([])
        self.values = []

    def add(self, record, data):
        super().add(record, data)
        dtype = np.float32 if record.dtype == "F32" else np.int64
        self.values.append(np.frombuffer(data, dtype).reshape(record.shape))


def values(plan, stages=None, **fields):
    """Run a plan and return every record with its values."""
    sink = KeepingSink()
    capture = msgspec.structs.replace(ALL, store="tensor")
    set_up(plan, stages, sink, capture=capture, **fields).run()
    return list(zip(sink.records, sink.values, strict=True))


def farthest(baseline, target):
    """Return by how much two runs differ at most, absolutely or relatively, at any value."""
    return max(
        float(np.max(np.abs(a - b) / (1 + np.abs(a)), initial=0.0))
        for a, b in zip(baseline, target, strict=True)
    )


def boundaries(found):
    """Return the value and state boundaries in execution order, rows that nobody wrote left out."""
    return [
        array
        for record, array in found
        if record.kind != "metadata" and "_pre_write" not in record.name and record.name != "token"
    ]


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize("route", ["triton-split", "triton-paged"])
def test_batched_routes_agree_with_the_eager_route(route):
    script = (
        batch(prefill(0, 10), prefill(1, 4)),
        batch(decode(1), prefill(0, 7), prefill(2, 3)),
        batch(decode(2), decode(0), decode(1)),
    )
    prompts = (prompt(17, 1), prompt(4, 2), prompt(3, 3))
    plan = script_plan(script, prompts, Pools(page_size=4, evict=True, capacity=48))
    eager = values(plan)
    triton = values(plan, route=route)
    assert [r.key for r, _ in eager] == [r.key for r, _ in triton]
    assert farthest(boundaries(eager), boundaries(triton)) < LIMIT
    broken = values(plan, faults=("skip-swa-allocation",))
    assert farthest(boundaries(broken), boundaries(triton)) > 100 * LIMIT


def by_position(found, session):
    """Return each row of a session's value boundaries by its name and position."""
    return {
        (record.name, record.row_start + row): array[row]
        for record, array in found
        if record.session == session and record.dims[:1] == ("T",) and record.kind == "value"
        for row in range(record.shape[0])
    }


def test_other_cuts_agree():
    one = script_plan((batch(prefill(0, 37)), batch(decode(0), times=2)), PROMPTS[:1], Pools())
    expected = by_position(values(one), 0)
    pools = Pools(page_size=4, evict=True)
    for chunks in ([16, 16, 5], [1, 35, 1], [9, 9, 9, 9, 1]):
        script = (*(batch(prefill(0, rows)) for rows in chunks), batch(decode(0), times=2))
        plan = script_plan(script, PROMPTS[:1], pools)
        found = by_position(values(plan), 0)
        assert found.keys() == expected.keys()
        assert farthest(expected.values(), [found[key] for key in expected]) < LIMIT
    broken = by_position(values(plan, faults=("evict-too-early",)), 0)
    assert farthest(expected.values(), [broken[key] for key in expected]) > 100 * LIMIT
