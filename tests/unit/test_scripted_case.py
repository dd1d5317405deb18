"""A case with a script: its fields, and how it is planned on a model."""

import pytest

from swarepro.checkpoint import open_checkpoint
from swarepro.errors import CaseError
from swarepro.plan import Finish, Reuse
from swarepro.runs import prepare
from swarepro.runs.prepare import plan_case
from tests.unit.scripts import KEPT, START, case, decode, prefill, reuse, rows

CHECKPOINT = open_checkpoint("synthetic:gemma4-tiny?layers=6")


@pytest.mark.parametrize(
    ("session", "message"),
    [
        ({"decode": 1}, "sessions[1] has chunks or decode steps, and the case a script"),
        ({"chunks": [8]}, "sessions[1] has chunks or decode steps, and the case a script"),
        ({"chunk": 8}, "sessions[1] has chunks or decode steps, and the case a script"),
    ],
)
def test_a_session_of_a_script_has_neither_chunks_nor_decode_steps(session, message) -> None:
    sessions = [{}, session]
    with pytest.raises(CaseError) as caught:
        case(START, sessions=sessions)
    assert message in caught.value.message
    without = case(sessions=sessions)
    assert len(plan_case(without, CHECKPOINT).steps) == 2 + without.sessions[1].decode


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"page_size": 0}, "`$.page_size`"),
        ({"page_size": 65}, "`$.page_size`"),
        ({"page_size": 1.5}, "`$.page_size`"),
        ({"evict": "yes"}, "`$.evict`"),
        ({"script": [{"rows": [{"session": -1}]}]}, "`$.script[0].rows[0].session`"),
        ({"script": [{"rows": [prefill(0, 0)]}]}, "`$.script[0].rows[0].prefill`"),
        ({"script": [{"rows": [{"prefill": 3}]}]}, "missing required field `session`"),
        ({"script": [rows(decode(0), times=0)]}, "`$.script[0].times`"),
        ({"script": [{"finish": 0}]}, "`$.script[0].finish`"),
        ({"script": [{"finish": [-1]}]}, "`$.script[0].finish[0]`"),
        ({"script": [reuse(1, 0, 0)]}, "`$.script[0].reuse.rows`"),
        ({"script": [{"reuse": {"session": 1, "rows": 4}}]}, "missing required field `of`"),
        ({"script": {"rows": []}}, "`$.script`"),
    ],
)
def test_a_field_that_is_out_of_range_is_named(changes, path) -> None:
    with pytest.raises(CaseError) as caught:
        case(**changes)
    assert path in caught.value.message


@pytest.mark.parametrize("page_size", [1, 3, 16, 64])
def test_pages_reach_the_plan(page_size: int) -> None:
    spec = case(START, page_size=page_size, capacity=192, swa_capacity=384, evict=True)
    plan = plan_case(spec, CHECKPOINT)
    assert (plan.page_size, plan.capacity, plan.swa_capacity) == (page_size, 192, 384)
    assert plan.evict
    assert plan_case(case(START), CHECKPOINT).evict is False


@pytest.mark.parametrize(
    ("changes", "what", "hint"),
    [
        ({"capacity": 10}, "capacity 10", "use 8 or 12"),
        ({"capacity": 13}, "capacity 13", "use 12 or 16"),
        ({"capacity": 16, "swa_capacity": 7}, "swa_capacity 7", "use 4 or 8"),
    ],
)
def test_a_capacity_has_to_be_a_whole_number_of_pages(changes, what, hint) -> None:
    with pytest.raises(CaseError) as caught:
        plan_case(case(START, page_size=4, **changes), CHECKPOINT)
    assert caught.value.message == f"{what} is no whole number of pages of 4"
    assert caught.value.hint == hint


def test_a_capacity_below_one_page_is_refused() -> None:
    spec = case(START, page_size=16, capacity=16, swa_capacity=9)
    with pytest.raises(CaseError, match="swa_capacity 9 is no whole number") as caught:
        plan_case(spec, CHECKPOINT)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("use 16")


def test_the_script_of_a_case_is_planned_with_its_pages_and_capacity() -> None:
    script = [*KEPT, reuse(1, 0, 6), rows(prefill(1, 2)), {"finish": [1]}]
    plan = plan_case(case(*script, sessions=[{}, {}], page_size=3, capacity=9), CHECKPOINT)
    assert plan.steps[-1].actions[-1] == Reuse(session=1, of=0, rows=6)
    assert plan.final_actions == (Finish(session=1),)
    with pytest.raises(CaseError, match="6 rows are no whole number of pages of 4"):
        plan_case(case(*script, sessions=[{}, {}], page_size=4), CHECKPOINT)
    longer = case(START, rows(decode(0)), capacity=8)
    with pytest.raises(CaseError, match=r"script\[1\]: session 0 reaches 9 positions"):
        plan_case(longer, CHECKPOINT)


def test_without_a_script_nothing_is_finished_at_the_end() -> None:
    plan = plan_case(case(sessions=[{}, {}]), CHECKPOINT)
    assert plan.final_actions == ()
    assert [step.reset for step in plan.steps] == [False, True]


def test_more_tokens_than_the_model_has_positions_are_refused_before_they_are_laid_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checkpoint = open_checkpoint("synthetic:gemma4-tiny?layers=6")
    longest = checkpoint.config.max_position_embeddings
    again = rows(decode(0), times=longest)
    spec = case(START, again, capacity=2 * longest)
    monkeypatch.setattr(prepare, "plan_script", lambda *_, **__: pytest.fail("it was laid out"))
    with pytest.raises(CaseError, match=f"a session uses {longest + 8} positions"):
        plan_case(spec, checkpoint)
