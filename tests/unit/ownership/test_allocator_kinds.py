"""What is wrong with an allocator is named by the first violation, the others are its consequences.

Each script is silent without the defect.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from swarepro.errors import CapacityError, SlotRangeError
from swarepro.kvcache import KVGroup
from tests.unit.ownership.defects import (
    AliasesSentinel,
    AllocatesBeforeItRefuses,
    AllocatesLate,
    AllocationLeaks,
    CachesTranslation,
    EvictForgets,
    EvictKeepsMapping,
    EvictLeaks,
    EvictOnlySaysSo,
    EvictsTooMuch,
    EvictsTwice,
    FinishFreesAnother,
    FinishKeepsMapping,
    FinishKeepsTable,
    FinishLeaks,
    FreesPageBeyond,
    FreesTwice,
    FullSlotsBeyond,
    HandsOutTwice,
    IgnoresExhaustion,
    NoTranslation,
    ResetKeepsMapping,
    ResetKeepsSlots,
    ReusesOthersRows,
    ReusesTombstones,
    Ring,
    SkipsAllocation,
    SkipsFinish,
    SkipsReset,
    StaysOnFreeList,
    TranslatesToFree,
    TranslatesToOne,
    TranslatesToOthers,
    ZeroesFreeList,
)
from tests.unit.ownership.scripts import (
    finish_and_go_on,
    finish_one_of_two,
    keep_one_of_two,
    overflow,
    recycle,
    reuse_whole,
    reuse_with_hole,
    session_after_reset,
    two_chunks,
    two_sessions,
)
from tests.unit.ownership.stage import Passing, SmallStage, on_allocator

FULL, SLIDING = KVGroup.FULL, KVGroup.SLIDING


@dataclass(frozen=True, kw_only=True)
class Defect:
    wrapper: type[Passing]
    script: Callable[[SmallStage], None]
    kind: str
    group: KVGroup = SLIDING
    step: int = 0
    layer: int | None = None
    pools: dict | None = None
    raises: type[Exception] | None = None

    @property
    def id(self) -> str:
        return f"{self.wrapper.__name__}-{self.kind}"


SMALL = {"capacity": 48, "swa_capacity": 14}
EVICT = {"evict": True}

DEFECTS = [
    Defect(wrapper=SkipsAllocation, script=two_chunks, kind="sentinel-store", layer=0),
    Defect(wrapper=AllocatesLate, script=two_chunks, kind="sentinel-store", layer=0),
    Defect(wrapper=AliasesSentinel, script=two_chunks, kind="sentinel-store", layer=0),
    Defect(wrapper=FreesTwice, script=finish_and_go_on, kind="double-free", group=FULL, step=1),
    Defect(wrapper=EvictsTwice, script=two_chunks, kind="free-of-sentinel", step=1, pools=EVICT),
    Defect(
        wrapper=ZeroesFreeList,
        script=session_after_reset,
        kind="free-of-sentinel",
        group=FULL,
        step=1,
    ),
    Defect(
        wrapper=IgnoresExhaustion,
        script=overflow,
        kind="exhaustion",
        pools={"swa_capacity": 16},
    ),
    Defect(
        wrapper=AllocatesBeforeItRefuses,
        script=overflow,
        kind="exhaustion",
        group=FULL,
        pools={"swa_capacity": 16},
        raises=CapacityError,
    ),
    Defect(wrapper=FinishKeepsMapping, script=finish_one_of_two, kind="free-while-mapped", step=1),
    Defect(
        wrapper=FinishKeepsTable,
        script=finish_one_of_two,
        kind="free-while-mapped",
        group=FULL,
        step=1,
    ),
    Defect(wrapper=EvictKeepsMapping, script=two_chunks, kind="free-while-mapped", pools=EVICT),
    Defect(wrapper=EvictForgets, script=two_chunks, kind="free-while-mapped", pools=EVICT),
    Defect(wrapper=EvictOnlySaysSo, script=two_chunks, kind="mapping-lost", pools=EVICT),
    Defect(wrapper=AllocationLeaks, script=two_chunks, kind="mapping-lost"),
    Defect(wrapper=StaysOnFreeList, script=two_chunks, kind="free-of-live"),
    Defect(wrapper=SkipsFinish, script=keep_one_of_two, kind="mapping-lost", group=FULL, step=1),
    Defect(wrapper=EvictsTooMuch, script=two_chunks, kind="free-of-live", pools=EVICT),
    Defect(wrapper=FinishFreesAnother, script=finish_one_of_two, kind="free-of-live", step=1),
    Defect(wrapper=EvictLeaks, script=two_chunks, kind="mapping-lost", pools=EVICT),
    Defect(wrapper=FinishLeaks, script=finish_one_of_two, kind="mapping-lost", group=FULL, step=1),
    Defect(wrapper=SkipsFinish, script=finish_one_of_two, kind="mapping-lost", group=FULL, step=1),
    Defect(wrapper=FreesPageBeyond, script=finish_one_of_two, kind="index-out-of-range", step=1),
    Defect(
        wrapper=NoTranslation,
        script=lambda stage: [stage.run((0, a, a + 6)) for a in (0, 6, 12, 18)],
        kind="index-out-of-range",
        step=2,
        pools=SMALL | EVICT,
        raises=SlotRangeError,
    ),
    Defect(
        wrapper=TranslatesToFree,
        script=two_chunks,
        kind="unallocated-store",
        layer=0,
        pools={"capacity": 48, "swa_capacity": 48},
    ),
    Defect(wrapper=TranslatesToOthers, script=two_sessions, kind="foreign-store", step=1, layer=0),
    Defect(wrapper=TranslatesToOne, script=two_chunks, kind="duplicate-slot-store", layer=0),
    Defect(
        wrapper=FullSlotsBeyond,
        script=two_chunks,
        kind="index-out-of-range",
        group=FULL,
        raises=Exception,
    ),
    Defect(
        wrapper=CachesTranslation,
        script=recycle,
        kind="stale-translation",
        step=2,
        pools={"capacity": 16, "swa_capacity": 16, "evict": True},
    ),
    Defect(wrapper=Ring, script=two_chunks, kind="alloc-over-live-mapping", step=1),
    Defect(wrapper=HandsOutTwice, script=overflow, kind="alloc-over-live-mapping", group=FULL),
    Defect(
        wrapper=ReusesTombstones,
        script=reuse_with_hole,
        kind="window-not-covered",
        step=1,
        pools=EVICT,
    ),
    Defect(
        wrapper=ReusesOthersRows, script=reuse_whole, kind="wrong-position-read", step=1, layer=0
    ),
    Defect(wrapper=ResetKeepsMapping, script=session_after_reset, kind="free-while-mapped", step=1),
    Defect(
        wrapper=SkipsReset, script=session_after_reset, kind="live-after-reset", group=FULL, step=1
    ),
    Defect(wrapper=ResetKeepsSlots, script=session_after_reset, kind="live-after-reset", step=1),
]


def play(defect: Defect, stage: SmallStage) -> None:
    try:
        defect.script(stage)
        stage.end()
    except Exception as error:
        assert defect.raises is not None, f"{type(error).__name__}: {error}"
        assert isinstance(error, defect.raises)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.id)
def test_the_first_violation_names_the_cause(defect: Defect):
    stage = SmallStage(on_allocator(defect.wrapper), **(defect.pools or {}))
    play(defect, stage)
    first = stage.first
    found = (first.kind, first.group, first.step, first.layer)
    assert found == (defect.kind, defect.group, defect.step, defect.layer), first.message


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.id)
def test_the_same_script_is_silent_without_the_defect(defect: Defect):
    stage = SmallStage(**(defect.pools or {}))
    if defect.kind == "exhaustion":
        with pytest.raises(CapacityError):
            defect.script(stage)
    else:
        defect.script(stage)
    stage.end()
    assert stage.log.violations == ()
    assert stage.accounts_are_exact()
