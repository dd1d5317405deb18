"""A case is watched whatever its options say: there is nothing else that the command does."""

import pytest

from swarepro import api
from swarepro.errors import UsageError
from swarepro.options import CaptureOptions, RunOptions
from swarepro.points import Level

FAULT = ("skip-swa-allocation",)


@pytest.mark.parametrize("ownership", [True, False])
def test_the_shadow_watches_though_the_options_say_off(ownership):
    options = RunOptions(faults=FAULT, ownership=ownership)
    found = api.watch_case(api.find_case("anchor-a"), options=options)
    first = found.violations[0]
    assert (first.kind, first.step, first.layer) == ("sentinel-store", 0, 0)
    assert (found.steps, found.steps_done, found.error) == (2, 2, None)


@pytest.mark.parametrize("ownership", [True, False])
def test_without_the_fault_it_is_silent(ownership):
    found = api.watch_case(api.find_case("anchor-a"), options=RunOptions(ownership=ownership))
    assert found.violations == ()
    assert [(entry.stage, entry.group) for entry in found.ownership] == [
        (stage, group) for stage in range(3) for group in ("full", "sliding")
    ]


def test_an_engine_without_slots_is_refused():
    with pytest.raises(UsageError, match="the engine dense has no slots to watch"):
        api.watch_case(api.find_case("anchor-a"), options=RunOptions(engine="dense"))


def test_what_is_captured_does_not_change_what_is_seen():
    case = api.find_case("anchor-a")
    wanted = api.watch_case(case, options=RunOptions(faults=FAULT))
    capture = CaptureOptions(level=Level.OP, store="tensor", points=("logits",), steps=(1,))
    assert api.watch_case(case, options=RunOptions(faults=FAULT, capture=capture)) == wanted


def test_a_refusal_is_part_of_the_answer_though_the_options_say_off():
    case = api.find_case("full-slots-on-small-pool")
    options = RunOptions(faults=("full-slots-on-swa-pool",), ownership=False)
    found = api.watch_case(case, options=options)
    assert found.error is not None and found.error.startswith("SlotRangeError: ")
    assert found.violations[0].kind == "index-out-of-range"
    assert found.steps_done == 2
