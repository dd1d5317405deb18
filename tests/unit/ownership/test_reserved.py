"""The reserved page: a store may write nothing there, whatever its slots are."""

from dataclasses import replace

import pytest
import torch

from swarepro.kvcache import KVGroup
from tests.unit.ownership.stage import FakeStore, SmallStage


class StoresPadding(FakeStore):
    """Stores its rows, and one more to ``slot``."""

    def __init__(self, slot: int, value: float) -> None:
        self.slot, self.value = slot, value

    def store(self, k, v, k_cache, v_cache, slots, context):
        super().store(k, v, k_cache, v_cache, slots, context)
        if context.group is KVGroup.SLIDING:
            v_cache[self.slot] = self.value


def padded(slot: int, value: float = 3.0, *, page_size: int = 4) -> SmallStage:
    store = StoresPadding(slot, value)
    stage = SmallStage(lambda parts: replace(parts, store=store), page_size=page_size)
    stage.run((0, 0, 6))
    return stage


@pytest.mark.parametrize("slot", [0, 3])
@pytest.mark.parametrize("value", [3.0, float("nan"), -0.0])
def test_a_row_beside_the_slots_is_found_where_it_is_written(slot, value):
    found = padded(slot, value).first
    assert (found.kind, found.layer, found.group) == ("sentinel-store", 0, KVGroup.SLIDING)
    assert found.slots == (slot,)
    assert found.positions == ()
    assert "also wrote" in found.message


@pytest.mark.parametrize(
    ("spans", "named"),
    [
        ([(0, 0, 6)], "session 0 positions 0 to 5"),
        ([(4, 0, 1), (2, 0, 3)], "session 4 position 0 and session 2 positions 0 to 2"),
        (
            [(session, 0, 2) for session in range(5)],
            "session 0 positions 0 to 1, session 1 positions 0 to 1, session 2 positions 0 to 1"
            " and 2 more",
        ),
    ],
)
def test_the_message_names_all_whose_rows_were_stored(spans, named):
    stage = SmallStage(lambda parts: replace(parts, store=StoresPadding(0, 3.0)))
    stage.run(*spans)
    assert stage.first.message.startswith(f"the store of {named} also wrote SWA slot 0, ")


def test_it_is_the_reserved_page_that_is_watched():
    """The control: a row in a page that can be owned is not the reserved page's business."""
    assert "sentinel-store" not in {violation.kind for violation in padded(17).log.violations}


def test_rows_whose_slots_lie_there_are_told_apart():
    """The founding defect: the store's own slots are the sentinel's, and the message says so."""
    stage = SmallStage()
    allocator = stage.cache.lifecycle
    translate = allocator.translate
    allocator.translate = lambda full: torch.zeros_like(translate(full))
    stage.run((0, 0, 6))
    (found,) = [v for v in stage.log.violations if v.kind == "sentinel-store"]
    assert "also wrote" not in found.message
    assert found.positions == tuple(range(6))


def test_a_cleared_pool_is_no_violation():
    stage = SmallStage()
    stage.run((0, 0, 6))
    stage.cache.fill = float("nan")
    stage.cache.clear()
    stage.parts.allocator.reset()
    stage.run((1, 0, 6))
    assert stage.log.violations == ()
