"""Short scripts for a small stage: silent where it is healthy, loud with a defect."""

from swarepro.plan import Phase
from tests.unit.ownership.defects import ReusesTombstones
from tests.unit.ownership.stage import SmallStage


def two_chunks(stage: SmallStage) -> None:
    stage.run((0, 0, 12))
    stage.run((0, 12, 20))
    stage.run((0, 20, 21), phase=Phase.DECODE)


def finish_one_of_two(stage: SmallStage) -> None:
    stage.run((0, 0, 12), (1, 0, 5))
    stage.finish(1)


def keep_one_of_two(stage: SmallStage) -> None:
    stage.run((0, 0, 12), (1, 0, 5))
    stage.finish(1, keep=True)


def finish_and_go_on(stage: SmallStage) -> None:
    finish_one_of_two(stage)
    stage.run((2, 0, 8))


def recycle(stage: SmallStage) -> None:
    """Session 2 gets the full slots that session 1 had, and other SWA slots: some were evicted."""
    stage.run((0, 0, 12))
    stage.run((1, 0, 4))
    stage.finish(1)
    stage.finish(0)
    stage.run((2, 0, 4))


def two_sessions(stage: SmallStage) -> None:
    stage.run((0, 0, 6))
    stage.run((1, 0, 6))


def session_after_reset(stage: SmallStage) -> None:
    stage.run((0, 0, 12))
    stage.reset()
    stage.run((1, 0, 8))


def reuse_whole(stage: SmallStage) -> None:
    stage.run((0, 0, 12))
    stage.finish(0, keep=True)
    stage.reuse(1, 0, 12)
    stage.run((1, 12, 16))


def reuse_with_hole(stage: SmallStage) -> None:
    """Positions of the window of position 8 were evicted."""
    stage.run((0, 0, 12))
    stage.finish(0, keep=True)
    rows = 8 if isinstance(stage.parts.allocator._inner, ReusesTombstones) else 12
    stage.reuse(1, 0, rows)
    stage.run((1, rows, rows + 1))


def overflow(stage: SmallStage) -> None:
    stage.run((0, 0, 12), (1, 0, 8))
