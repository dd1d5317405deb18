"""The check of a gather by itself, on pools and owners that are made up."""

import pytest
import torch

from swarepro.kvcache import KVGroup, KVPool
from swarepro.ownership import ViolationLog
from swarepro.ownership.gathers import GatherCheck
from swarepro.ownership.keys import owner_keys
from swarepro.ownership.reporter import Reporter
from swarepro.ownership.sessions import ShadowSessions
from swarepro.ownership.slots import SlotStates
from swarepro.plan import Phase, Span
from swarepro.runtime.parts import AttentionCall, Request
from tests.unit.ownership.stage import GROUPS, row_digests

SLIDING = KVGroup.SLIDING
END = 12


class Gathers:
    """Session 0 owns slots 1 to 12 with positions 0 to 11, all written in both sliding layers."""

    def __init__(self) -> None:
        (spec,) = [spec for spec in GROUPS if spec.group is SLIDING]
        self.pool = KVPool(
            spec, capacity=16, page_size=1, dtype=torch.float32, device=torch.device("cpu")
        )
        self.pool.kv.copy_(torch.sin(torch.arange(self.pool.kv.numel())).view_as(self.pool.kv))
        self.states = SlotStates(self.pool.num_slots, 2)
        slots = torch.arange(1, END + 1)
        self.states.give(slots, owner_keys(0, 0, END))
        for layer in (0, 1):
            self.states.write(layer, slots, row_digests(self.pool.gather(layer, slots)), 0)
        self.log = ViolationLog()
        self._check = GatherCheck(
            {SLIDING: self.pool},
            {SLIDING: self.states},
            ShadowSessions(),
            1,
            row_digests,
            Reporter(self.log, 0),
        )

    def read(self, *wrong: tuple[int, int], window_left: int | None = 7, step: int = 1) -> None:
        """Decode position 11 from the slots of all positions; ``wrong``: (position, slot)."""
        slots = torch.arange(1, END + 1)
        for position, slot in wrong:
            slots[position] = slot
        k_cache, v_cache = self.pool.layer(0)
        q = torch.zeros(1, 2, 4)
        request = Request(
            span=Span(session=0, start=END - 1, end=END, phase=Phase.DECODE),
            rows=slice(0, 1),
            entries=slice(0, END),
            visible_start=0,
        )
        call = AttentionCall(
            step=step,
            layer=0,
            group=SLIDING,
            pool_layer=0,
            requests=(request,),
            batch=(request.span,),
            q=q,
            k=q[:, :1],
            v=q[:, :1],
            k_cache=k_cache,
            v_cache=v_cache,
            slots=slots,
            window_left=window_left,
            ahead=None,
            scale=1.0,
            softcap=None,
            out=torch.empty_like(q),
            scratch=None,
        )
        self._check.check(call, reads_own=[True])

    @property
    def found(self) -> list[tuple]:
        return [(v.kind, v.positions, v.slots) for v in self.log.violations]


def test_rows_as_they_were_written_are_silent():
    gathers = Gathers()
    gathers.read()
    gathers.read(window_left=None)
    assert gathers.found == []


@pytest.mark.parametrize("narrow_first", [True, False])
def test_layers_of_one_step_have_windows_of_their_own(narrow_first):
    """The same requests, and position 0 is wrong: 7 keys to the left nobody sees it."""
    gathers = Gathers()
    wrong = (0, 5)
    if narrow_first:
        gathers.read(wrong, window_left=7)
        assert gathers.found == []
        gathers.read(wrong, window_left=11)
    else:
        gathers.read(window_left=11)
        gathers.read(wrong, window_left=7)
        assert gathers.found == []
        gathers.read(wrong, window_left=None)
    assert gathers.found == [("wrong-position-read", (0,), (5,))]


@pytest.mark.parametrize(("window_left", "first"), [(0, 11), (7, 4), (10, 1), (11, 0), (None, 0)])
def test_the_first_position_that_is_looked_at(window_left, first):
    gathers = Gathers()
    gathers.states.digests[0] = 0
    gathers.read(window_left=window_left)
    assert gathers.found == [
        ("unwritten-read", tuple(range(first, END)), tuple(range(first + 1, END + 1)))
    ]


def test_where_some_rows_are_wrong_the_others_are_compared_each_with_its_own():
    """Position 5 is read from elsewhere, the row of 9 has changed, the others are as written."""
    gathers = Gathers()
    gathers.pool.kv[0, 10, 0, 0, 0] += 1
    gathers.read((5, 15))
    assert gathers.found == [
        ("stale-generation-read", (5,), (15,)),
        ("row-changed-since-write", (9,), (10,)),
    ]


def test_where_some_rows_are_wrong_and_no_row_has_changed():
    gathers = Gathers()
    gathers.read((5, 8))
    assert gathers.found == [("wrong-position-read", (5,), (8,))]


def test_a_changed_row_of_another_is_not_said_to_have_changed():
    """Position 5 is read from slot 8, whose row has changed: it is another's, that is all."""
    gathers = Gathers()
    gathers.pool.kv[0, 8, 0, 0, 0] += 1
    gathers.read((5, 8), (7, 6))
    assert gathers.found == [("wrong-position-read", (5, 7), (8, 6))]


def test_where_all_rows_are_wrong_nothing_has_changed():
    gathers = Gathers()
    gathers.pool.kv += 1
    gathers.read(*((position, 15) for position in range(END)))
    assert [kind for kind, *_ in gathers.found] == ["stale-generation-read"]
