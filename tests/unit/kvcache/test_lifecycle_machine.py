"""Random prefills, decodes, evictions, ends and reuses against a dictionary of who owns what."""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from swarepro.kvcache import SlotLifecycle
from tests.unit.kvcache import saboteurs
from tests.unit.kvcache.machine import LifecycleMachine

TestLifecycle = LifecycleMachine.TestCase
TestLifecycle.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)

SABOTEURS = [
    kind
    for kind in vars(saboteurs).values()
    if isinstance(kind, type) and issubclass(kind, SlotLifecycle) and kind is not SlotLifecycle
]


def run(make: type[SlotLifecycle]) -> None:
    """Run the machine over ``make``, the same way each time, until it fails."""
    machine = type("Machine", (LifecycleMachine,), {"make": make})
    chosen = settings(
        max_examples=3000,
        stateful_step_count=30,
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.generate,),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=chosen)


@pytest.mark.parametrize("broken", SABOTEURS, ids=lambda kind: kind.__name__)
def test_the_machine_fails_over_a_broken_owner(broken: type[SlotLifecycle]) -> None:
    with pytest.raises((AssertionError, LookupError)):
        run(broken)
