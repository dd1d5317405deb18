"""The check of a translation: an old one is one whose every wrong entry is old."""

import pytest

from swarepro.kvcache import KVGroup
from swarepro.ownership import Owner
from swarepro.plan import Phase
from tests.unit.ownership.scripts import recycle
from tests.unit.ownership.stage import Passing, SmallStage, on_allocator


class Answers(Passing):
    """Translates as the real one does, but for some ``answers``: SWA slot by full slot."""

    def __init__(self, inner):
        super().__init__(inner)
        self.answers = {}

    def translate(self, full_slots):
        slots = self.inner.translate(full_slots)
        for full, slot in self.answers.items():
            slots[full_slots == full] = slot
        return slots


FULL_SLOTS = (13, 14, 15, 16)
"""Of session 2, positions 0 to 3, in SWA slots 1 to 4; session 1 had them in SWA slots 13 to 16."""


@pytest.fixture
def stage() -> SmallStage:
    stage = SmallStage(on_allocator(Answers), capacity=16, swa_capacity=16, evict=True)
    recycle(stage)
    assert stage.cache.lifecycle.full_slots(2, 4).tolist() == list(FULL_SLOTS)
    assert stage.cache.lifecycle.mapping[13:].tolist() == [1, 2, 3, 4]
    assert stage.log.violations == ()
    return stage


def decode(stage: SmallStage, answers: dict[int, int]) -> None:
    """Decode position 4, for which some of the full slots are translated to something else."""
    stage.parts.allocator._inner.answers = answers
    stage.run((2, 4, 5), phase=Phase.DECODE)


@pytest.mark.parametrize("positions", [(0,), (2,), (1, 3), (0, 1, 2, 3)])
def test_entries_as_they_were_before_are_an_old_translation(stage, positions):
    decode(stage, {FULL_SLOTS[position]: FULL_SLOTS[position] for position in positions})
    first = stage.first
    assert (first.kind, first.group, first.positions) == (
        "stale-translation",
        KVGroup.SLIDING,
        positions,
    )
    assert first.slots == tuple(FULL_SLOTS[position] for position in positions)
    assert first.user == Owner(session=2, position=positions[0])


@pytest.mark.parametrize(
    "answers",
    [{14: 3}, {13: 13, 14: 3}, {13: 3, 14: 14}, {13: 13, 14: 14, 15: 15, 16: 14}],
    ids=str,
)
def test_one_entry_that_never_was_so_makes_it_another_defect(stage, answers):
    """A shuffled table holds an old slot by chance; the rows that it leads to are judged."""
    decode(stage, answers)
    assert "stale-translation" not in stage.kinds
    assert stage.first.kind in ("wrong-position-read", "stale-generation-read")


def test_an_entry_that_is_missing_is_not_looked_at(stage):
    """Slot 0 is what a mapping that was never made says, too."""
    decode(stage, {13: 0, 15: 15})
    assert (stage.first.kind, stage.first.positions) == ("stale-translation", (2,))


def test_all_entries_missing_are_no_old_translation(stage):
    decode(stage, dict.fromkeys(FULL_SLOTS, 0))
    assert stage.kinds == ["sentinel-read"]
