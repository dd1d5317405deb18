from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarepro.case import PromptSpec, SessionSpec
from swarepro.errors import CaseError
from swarepro.plan import (
    Phase,
    Span,
    StageRole,
    Step,
    parse_range,
    plan_chunks,
    plan_sessions,
    plan_stages,
    resolve_prompt,
)


def session(
    *, rows: int = 67, chunk: int = 64, chunks: tuple[int, ...] | None = None, decode: int = 0
) -> SessionSpec:
    return SessionSpec(prompt=PromptSpec(random=rows), chunk=chunk, chunks=chunks, decode=decode)


def plan(*sessions: SessionSpec, capacity: int = 512) -> tuple[Step, ...]:
    prompts = tuple((7,) * (spec.prompt.random or 0) for spec in sessions)
    return plan_sessions(sessions, prompts, capacity=capacity)


# Chunks


@pytest.mark.parametrize(
    ("spec", "sizes"),
    [
        (session(rows=67), (64, 3)),
        (session(rows=64), (64,)),
        (session(rows=53), (53,)),
        (session(rows=128), (64, 64)),
        (session(rows=3, chunk=1), (1, 1, 1)),
        (session(rows=53, chunks=(32, 21)), (32, 21)),
    ],
)
def test_chunk_sizes(spec: SessionSpec, sizes: tuple[int, ...]) -> None:
    assert plan_chunks(spec, rows=spec.prompt.random or 0, where="s") == sizes


@given(st.integers(1, 2000), st.integers(1, 200))
def test_chunks_tile_the_prompt(rows: int, chunk: int) -> None:
    sizes = plan_chunks(session(rows=rows, chunk=chunk), rows=rows, where="s")
    assert sum(sizes) == rows
    assert all(size == chunk for size in sizes[:-1])
    assert 1 <= sizes[-1] <= chunk


def test_chunks_that_do_not_add_up_are_refused_with_the_sum() -> None:
    with pytest.raises(CaseError, match=r"^sessions\[0\]: chunks 32 \+ 20 = 52 .* 53 rows"):
        plan(session(rows=53, chunks=(32, 20)))


@pytest.mark.parametrize("spec", [session(rows=5, chunk=0), session(rows=5, chunks=(5, 0))])
def test_a_chunk_without_rows_is_refused(spec: SessionSpec) -> None:
    with pytest.raises(CaseError, match="a chunk has at least one row"):
        plan(spec)


# Steps


@given(
    st.lists(
        st.tuples(st.integers(1, 300), st.integers(1, 80), st.integers(0, 5)),
        min_size=1,
        max_size=4,
    )
)
def test_steps_tile_every_session(drawn: list[tuple[int, int, int]]) -> None:
    sessions = [session(rows=rows, chunk=chunk, decode=decode) for rows, chunk, decode in drawn]
    steps = plan(*sessions)
    assert [step.index for step in steps] == list(range(len(steps)))
    for index, (rows, _, decode) in enumerate(drawn):
        mine = [step for step in steps if step.spans[0].session == index]
        assert all(len(step.spans) == 1 for step in mine)
        ends = [0, *(step.spans[0].end for step in mine)]
        assert [step.spans[0].start for step in mine] == ends[:-1]
        assert ends[-1] == rows + decode
        prefill = [step for step in mine if step.phase is Phase.PREFILL]
        assert mine == prefill + [step for step in mine if step.phase is Phase.DECODE]
        assert prefill[-1].spans[0].end == rows
        assert [step.reset for step in mine] == [index > 0] + [False] * (len(mine) - 1)


def test_decode_takes_one_position_a_step() -> None:
    steps = plan(session(rows=3, decode=2))
    assert [(step.phase, step.spans) for step in steps] == [
        (Phase.PREFILL, (Span(session=0, start=0, end=3),)),
        (Phase.DECODE, (Span(session=0, start=3, end=4, phase=Phase.DECODE),)),
        (Phase.DECODE, (Span(session=0, start=4, end=5, phase=Phase.DECODE),)),
    ]


def test_the_phase_of_a_step_is_that_of_its_spans() -> None:
    prefill = Span(session=0, start=0, end=3)
    decode = Span(session=1, start=3, end=4, phase=Phase.DECODE)
    for spans, phase in (
        ((prefill,), Phase.PREFILL),
        ((decode, decode), Phase.DECODE),
        ((prefill, decode), Phase.MIXED),
    ):
        assert Step(index=0, spans=spans).phase is phase
    assert (prefill.rows, decode.rows) == (3, 1)


def test_sessions_that_run_one_after_another_are_not_finished_but_reset() -> None:
    steps = plan(session(rows=3, decode=1), session(rows=2))
    assert [(step.reset, step.actions) for step in steps] == [(False, ()), (False, ()), (True, ())]


def test_a_session_may_use_every_position_of_the_capacity_and_no_more() -> None:
    assert plan(session(rows=60, decode=4), capacity=64)[-1].spans[0].end == 64
    with pytest.raises(CaseError) as caught:
        plan(session(rows=60), session(rows=60, decode=5), capacity=64)
    assert "sessions[1]: 60 prompt rows and 5 decode steps need 65" in caught.value.message
    assert "the capacity is 64" in caught.value.message
    assert caught.value.hint is not None


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(CaseError, match="the prompt is empty"):
        plan(session(rows=0, decode=1))


# Stages


def roles(*, stages: str | None = None, layers: str | None = None) -> list[tuple[int, int, str]]:
    return [
        (stage.layer_start, stage.layer_end, str(stage.role))
        for stage in plan_stages(stages=stages, layers=layers, num_layers=12)
    ]


def test_stage_roles() -> None:
    assert roles() == [(0, 12, "single")]
    assert roles(stages="0:12") == [(0, 12, "single")]
    assert roles(stages="0:5, 5:12") == [(0, 5, "first"), (5, 12, "last")]
    assert roles(stages="0:4,4:8,8:12") == [(0, 4, "first"), (4, 8, "middle"), (8, 12, "last")]
    assert roles(layers="0:4") == [(0, 4, "first")]
    assert roles(layers="4:8") == [(4, 8, "middle")]
    assert roles(layers="8:12") == [(8, 12, "last")]


@given(st.sets(st.integers(1, 11)))
def test_any_cut_of_the_layers_is_a_chain(cuts: set[int]) -> None:
    edges = [0, *sorted(cuts), 12]
    pairs = list(pairwise(edges))
    stages = plan_stages(
        stages=",".join(f"{start}:{end}" for start, end in pairs), layers=None, num_layers=12
    )
    assert [(stage.layer_start, stage.layer_end) for stage in stages] == pairs
    assert [stage.has_embedding for stage in stages] == [True] + [False] * (len(stages) - 1)
    assert [stage.has_head for stage in stages] == [False] * (len(stages) - 1) + [True]


@pytest.mark.parametrize(
    ("role", "embedding", "head"),
    [
        (StageRole.FIRST, True, False),
        (StageRole.MIDDLE, False, False),
        (StageRole.LAST, False, True),
        (StageRole.SINGLE, True, True),
    ],
)
def test_which_ends_a_role_owns(role: StageRole, embedding: bool, head: bool) -> None:
    (stage,) = plan_stages(
        stages=None,
        layers={"first": "0:4", "middle": "4:8", "last": "8:12", "single": "0:12"}[role],
        num_layers=12,
    )
    assert (stage.role, stage.has_embedding, stage.has_head) == (role, embedding, head)


@pytest.mark.parametrize(
    ("stages", "says"),
    [
        ("0:4,5:12", "leave a hole: no stage has layers 4:5"),
        ("1:12", "leave a hole: no stage has layers 0:1"),
        ("0:4,4:8", "leave a hole: no stage has layers 8:12"),
        ("0:6,4:12", "overlap: 4:12 begins before 6"),
        ("0:4,4:8,0:4,8:12", "overlap: 0:4 begins before 8"),
        ("0:4,4:13", "'4:13' is not inside the model's 12 layers"),
        ("0:4,4:4,4:12", "'4:4'"),
        ("0:4,,4:12", "not a layer range: ''"),
        ("", "not a layer range: ''"),
    ],
)
def test_stages_that_do_not_tile_the_model_are_refused(stages: str, says: str) -> None:
    with pytest.raises(CaseError) as caught:
        plan_stages(stages=stages, layers=None, num_layers=12)
    assert says in caught.value.message


def test_stages_and_layers_exclude_each_other() -> None:
    with pytest.raises(CaseError, match="exclude each other"):
        plan_stages(stages="0:12", layers="0:4", num_layers=12)


@pytest.mark.parametrize("text", ["4", "4:", ":4", "a:b", "-1:4", "4-8", "1:2:3", "1.0:2"])
def test_what_is_no_range_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(CaseError) as caught:
        parse_range(text, num_layers=12)
    assert repr(text) in caught.value.message
    assert caught.value.hint == "write START:END, e.g. 0:4"


# Prompts


def test_random_prompts_are_the_same_everywhere() -> None:
    """Bundles of two machines are compared by digest, so these ids are part of the contract."""
    tokens = resolve_prompt(PromptSpec(random=6, seed=3), vocab_size=1000, where="s")
    assert tokens == (237, 544, 369, 603, 625, 65)
    longer = resolve_prompt(PromptSpec(random=9, seed=3), vocab_size=1000, where="s")
    assert longer[:6] == tokens


@given(st.integers(1, 100), st.integers(0, 2**32), st.integers(1, 300_000))
def test_random_prompts_stay_in_the_vocabulary(rows: int, seed: int, vocab_size: int) -> None:
    tokens = resolve_prompt(PromptSpec(random=rows, seed=seed), vocab_size=vocab_size, where="s")
    assert len(tokens) == rows
    assert all(0 <= token < vocab_size for token in tokens)


@pytest.mark.parametrize("bad", [10, -1])
def test_a_token_outside_the_vocabulary_is_named(bad: int) -> None:
    prompt = PromptSpec(tokens=(3, bad))
    with pytest.raises(CaseError, match=rf"^s: token {bad} at position 1 .* vocabulary of 10"):
        resolve_prompt(prompt, vocab_size=10, where="s")


def test_a_text_has_to_be_encoded_first() -> None:
    with pytest.raises(CaseError, match="has to be encoded"):
        resolve_prompt(PromptSpec(text="a"), vocab_size=10, where="s")


def test_too_many_spans_are_refused_before_they_are_laid_out() -> None:
    sessions = tuple(SessionSpec(prompt=PromptSpec(random=1), decode=2**20 - 1) for _ in range(40))
    with pytest.raises(CaseError, match=f"compute {40 * 2**20} spans; a run has {2**20} at most"):
        plan_sessions(sessions, ((1,),) * 40, capacity=2**20)
