"""Which stages a fault wraps: one of the full pool also a stage that has nothing else."""

import pytest

from swarepro.kvcache import KVGroup
from tests.unit.runtime.scripted import (
    RESET,
    STAGES,
    Pools,
    batch,
    finish,
    prefill,
    prompt,
    run_plan,
    script_plan,
)

FINISHED = (batch(prefill(0, 12)), finish(0), batch(prefill(1, 12)))
RESET_BETWEEN = (batch(prefill(0, 12)), RESET, batch(prefill(1, 12)))
FULL_ONLY = 1  # of the three stages


@pytest.mark.parametrize(
    ("fault", "script", "kind"),
    [
        ("free-pages-twice", FINISHED, "double-free"),
        ("finish-leaks-slots", FINISHED, "mapping-lost"),
        ("skip-reset", RESET_BETWEEN, "live-after-reset"),
    ],
)
def test_a_fault_of_the_full_pool_is_in_a_stage_of_full_layers_too(fault, script, kind):
    plan = script_plan(script, (prompt(12, 1), prompt(12, 2)), Pools(page_size=4), STAGES[2])
    assert run_plan(plan, STAGES[2]).outcome.violations == ()
    found = run_plan(plan, STAGES[2], faults=(fault,)).outcome.violations
    first = next(x for x in found if x.stage == FULL_ONLY)
    assert (first.kind, first.group, first.step) == (kind, KVGroup.FULL, 1)


def test_a_fault_of_the_swa_pool_leaves_a_stage_of_full_layers_alone():
    plan = script_plan(FINISHED, (prompt(12, 1), prompt(12, 2)), Pools(), STAGES[2])
    found = run_plan(plan, STAGES[2], faults=("skip-swa-allocation",)).outcome.violations
    assert {x.stage for x in found} == {0, 2}
