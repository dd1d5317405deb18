"""The layer table has to be a bijection onto what the stage has, positions have to be a span's."""

from dataclasses import replace

import pytest
import torch

from swarepro.kvcache import KVGroup
from swarepro.ownership import Owner
from tests.unit.ownership.stage import Passing, SmallStage

FULL, SLIDING = KVGroup.FULL, KVGroup.SLIDING


def with_places(change):
    class Changed(Passing):
        def places(self):
            return change(self.inner.places())

    return lambda parts: replace(parts, layers=Changed(parts.layers))


def set_at(index, **changes):
    return lambda places: tuple(
        replace(place, **changes) if at == index else place for at, place in enumerate(places)
    )


@pytest.mark.parametrize(
    ("change", "layer", "text"),
    [
        (set_at(2, config_layer=0), 2, "from layer 0"),
        (set_at(1, pool_layer=0), 1, "pool layer 0, which is layer 0's"),
        (set_at(2, pool_layer=2), 2, "which the pool of 1 layers does not have"),
        (set_at(1, group=FULL), 1, "uses the full pool"),
        (set_at(0, window_left=8), 0, "see 9 keys, their own among them, and those of the SWA"),
        (set_at(1, window_left=None), 1, "see all keys"),
        (set_at(2, window_left=7), 2, "pool's layers all keys"),
        (set_at(1, layer=0), 0, "runs where the stage has layer 1"),
        (lambda places: places[:2], 2, "has no place"),
        (lambda places: (*places, places[-1]), 2, "has nothing any more"),
        (lambda places: places[::-1], 2, "runs where the stage has layer 0"),
    ],
)
def test_a_wrong_layer_table(change, layer, text):
    stage = SmallStage(with_places(change))
    (found,) = stage.log.violations
    assert (found.kind, found.step, found.layer) == ("layer-table", 0, layer)
    assert text in found.message


def test_the_right_table_is_silent():
    assert SmallStage().log.violations == ()


def with_positions(change):
    class Changed(Passing):
        def positions(self, span):
            return change(self.inner.positions(span))

    return lambda parts: replace(parts, metadata=Changed(parts.metadata))


@pytest.mark.parametrize(
    ("change", "position", "text"),
    [
        (lambda found: found - found[0], 6, "local to the chunk"),
        (lambda found: found + found[0], 6, "counted twice"),
        (lambda found: found - 2 * (found[0] > 0), 6, "started again"),
        (lambda found: found + 3 * (found[0] > 0), 6, "3 positions are skipped"),
        (lambda found: found + (found == 8), 8, "not one after another"),
        (lambda found: found[: 5 if len(found) == 6 else None], 0, "shape (5,)"),
    ],
)
def test_wrong_positions(change, position, text):
    stage = SmallStage(with_positions(change))
    stage.run((4, 0, 6))
    stage.run((4, 6, 10))
    (found,) = stage.log.violations
    assert (found.kind, found.group) == ("position-gap", None)
    assert found.user == Owner(session=4, position=position)
    assert text in found.message


def test_right_positions_of_another_dtype_are_silent():
    stage = SmallStage(with_positions(lambda found: found.to(torch.int32)))
    stage.run((4, 0, 6))
    stage.run((4, 6, 10))
    assert stage.log.violations == ()
