"""The log keeps the first violation of each stage, group and kind, in execution order."""

import pytest

from swarepro.kvcache import KVGroup
from swarepro.ownership import ViolationLog
from tests.unit.ownership.defects import AliasesSentinel
from tests.unit.ownership.stage import Passing, SmallStage, on_allocator


def add(log, kind="double-free", *, stage=0, group=KVGroup.FULL, message="text"):
    log.add(kind, stage=stage, group=group, message=message)


def test_it_keeps_the_first_of_its_kind():
    log = ViolationLog()
    assert log.first is None
    log.begin_step(3)
    add(log, message="first")
    log.begin_step(4)
    add(log, message="second")
    add(log, stage=1)
    add(log, group=KVGroup.SLIDING)
    add(log, "mapping-lost")
    found = [(x.step, x.stage, x.group, x.kind, x.order) for x in log.violations]
    assert found == [
        (3, 0, "full", "double-free", 0),
        (4, 1, "full", "double-free", 1),
        (4, 0, "sliding", "double-free", 2),
        (4, 0, "full", "mapping-lost", 3),
    ]
    assert log.first is not None and log.first.message == "first"


def test_an_undeclared_kind_is_a_bug():
    with pytest.raises(RuntimeError, match="undeclared kind"):
        add(ViolationLog(), "double-fee")


def test_stages_share_the_log():
    log = ViolationLog()
    stages = [
        SmallStage(wrap, log=log, stage=index)
        for index, wrap in enumerate([lambda parts: parts, on_allocator(AliasesSentinel)])
    ]
    for stage in stages:
        stage.run((0, 0, 12))
    assert [(x.stage, x.kind) for x in log.violations] == [(1, "sentinel-store")]


def test_what_is_done_before_a_step_belongs_to_it():
    class Leaks(Passing):
        def finish(self, session, *, keep):
            del self.tables[session]

    stage = SmallStage(on_allocator(Leaks))
    stage.run((0, 0, 4))
    stage.finish(0)
    assert stage.first.step == 1
