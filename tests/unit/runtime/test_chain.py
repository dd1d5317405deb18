"""What is done after the last step is done after the last step, and once."""

import pytest

from swarepro.capture import MemorySink
from swarepro.runtime.chain import StageChain
from tests.unit.runtime.scripted import (
    OUTPUT,
    STAGES,
    Pools,
    batch,
    decode,
    finish,
    prefill,
    prompt,
    script_plan,
    set_up,
)

SCRIPT = (batch(prefill(0, 5), prefill(1, 3)), finish(1), batch(decode(0), times=2), finish(0))


def execution(stages=None):
    plan = script_plan(SCRIPT, (prompt(5, 1), prompt(3, 2)), Pools(), stages)
    assert len(plan.steps) == 3
    return set_up(plan, stages, MemorySink([]), capture=OUTPUT)


def live(run):
    """Return how many full slots running sessions own, one number where the stages agree."""
    return {accounts[0].live for accounts in run.accounts()}


@pytest.fixture
def ended(monkeypatch):
    """Return the list of the sessions that the chain is told to finish."""
    sessions = []
    act = StageChain.act

    def noted(self, actions):
        sessions.extend(action.session for action in actions)
        act(self, actions)

    monkeypatch.setattr(StageChain, "act", noted)
    return sessions


@pytest.mark.parametrize("stages", STAGES)
def test_the_last_actions_wait_for_the_last_step(stages):
    run = execution(stages)
    seen = []
    for index in range(3):
        run.run_steps(slice(index, index + 1))
        seen.append(live(run))
    assert seen == [{5 + 3}, {5 + 1}, {0}]


@pytest.mark.parametrize(
    ("chosen", "wanted"),
    [
        (slice(0, 1), []),
        (slice(0, 2), [1]),
        (slice(0, 3), [1, 0]),
        (slice(0, 0), []),
        (slice(3, None), []),
    ],
)
def test_what_follows_the_last_step_belongs_to_it(ended, chosen, wanted):
    execution().run_steps(chosen)
    assert ended == wanted


@pytest.mark.parametrize("stages", STAGES)
def test_a_whole_run_does_them_once(ended, stages):
    run = execution(stages)
    run.run()
    assert ended == [1, 0]
    assert live(run) == {0}
