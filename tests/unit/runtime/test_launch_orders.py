"""A schedule reaches every launch of the Triton routes, each with a key of its own."""

from importlib.util import find_spec
from itertools import groupby

import pytest
import torch

from swarepro.backend import Backend
from swarepro.kvcache import KVGroup
from swarepro.plan import Phase, Span
from swarepro.runtime.parts import AttentionCall, Request, StoreContext
from swarepro.runtime.routes import build_route
from swarepro.runtime.schedule import NaturalOrder
from swarepro.runtime.scratch import FilledScratch

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")


class RecordingSchedule:
    """Notes what it is asked for."""

    def __init__(self):
        self.asked = []

    def order(self, num_programs, *key):
        self.asked.append((num_programs, key))
        return torch.arange(num_programs - 1, -1, -1)


def parts(name):
    backend = Backend(device="cpu", triton="interpret")
    backend.activate()
    schedule = RecordingSchedule()
    return build_route(name, schedule, backend), schedule


def call(*phases):
    """One request for each phase: a decoded token, or a chunk of 3 rows, after 4 keys each."""
    requests, rows, entries = [], 0, 0
    for session, phase in enumerate(phases):
        own = 1 if phase is Phase.DECODE else 3
        requests.append(
            Request(
                span=Span(session=session, start=4, end=4 + own, phase=phase),
                rows=slice(rows, rows + own),
                entries=slice(entries, entries + 4 + own),
                visible_start=0,
            )
        )
        rows, entries = rows + own, entries + 4 + own
    pool = torch.ones(2, 1 + entries, 1, 16)
    return AttentionCall(
        step=0,
        layer=0,
        group=KVGroup.FULL,
        pool_layer=0,
        requests=tuple(requests),
        batch=tuple(request.span for request in requests),
        q=torch.ones(rows, 2, 16),
        k=torch.ones(rows, 1, 16),
        v=torch.ones(rows, 1, 16),
        k_cache=pool[0],
        v_cache=pool[1],
        slots=torch.arange(1, 1 + entries),
        window_left=None,
        ahead=None,
        scale=1.0,
        softcap=None,
        out=torch.empty(rows, 2, 16),
        scratch=FilledScratch(0.0, NaturalOrder(), dtype=torch.float32, device=torch.device("cpu")),
    )


OPS = {
    "rms_norm": lambda ops: ops.rms_norm(torch.ones(3, 8), None, eps=1e-6, adds_one=False),
    "rope": lambda ops: ops.rope(torch.ones(3, 2, 8), torch.ones(3, 4), torch.zeros(3, 4)),
    "gelu_tanh_mul": lambda ops: ops.gelu_tanh_mul(torch.ones(3, 8)),
    "softcap": lambda ops: ops.softcap(torch.ones(1, 8), 3.0),
}


@pytest.mark.parametrize("name", OPS)
def test_row_wise_launches(name):
    route, schedule = parts("triton-split")
    for _ in range(2):
        OPS[name](route.ops)
    keys = [key for _, key in schedule.asked]
    assert len(keys) == 2
    assert keys[0] != keys[1]


PREFILL, DECODE = Phase.PREFILL, Phase.DECODE


@pytest.mark.parametrize(
    ("route_name", "phases", "launches"),
    [
        ("triton-split", [PREFILL], 1),
        ("triton-split", [DECODE], 2),  # a decode also reduces
        ("triton-split", [DECODE, DECODE], 2),
        ("triton-split", [PREFILL, PREFILL], 2),
        ("triton-split", [DECODE, PREFILL, DECODE, DECODE], 5),
        ("triton-paged", [PREFILL], 1),
        ("triton-paged", [DECODE], 1),
        ("triton-paged", [DECODE, PREFILL, DECODE, DECODE], 1),
    ],
)
def test_attention_launches(route_name, phases, launches):
    route, schedule = parts(route_name)
    route.attention.attend(call(*phases))
    assert len(schedule.asked) == launches
    keys = [key for _, key in schedule.asked]
    # The two launches of a decode, partial sums and their reduction, are one operation.
    decodes = sum(1 for phase, _ in groupby(phases) if phase is DECODE)
    assert len(set(keys)) == launches - (decodes if route_name == "triton-split" else 0)


def test_the_store_has_the_eager_routes_order():
    context = StoreContext(
        step=5,
        layer=6,
        group=KVGroup.SLIDING,
        pool_layer=0,
        spans=(Span(session=4, start=0, end=1), Span(session=9, start=0, end=1)),
    )
    asked = []
    for name in ("eager", "triton-split"):
        route, schedule = parts(name)
        pool = torch.zeros(2, 4, 1, 16)
        rows = torch.arange(32.0).reshape(2, 1, 16)
        same = torch.tensor([2, 2])
        route.store.store(rows, rows, pool[0], pool[1], same, context)
        asked.append((schedule.asked, pool))
    assert asked[0][0] == asked[1][0] == [(4, (4, 5, 6))]
    assert torch.equal(asked[0][1], asked[1][1])
    assert torch.equal(asked[0][1][0, 2], torch.arange(16.0).reshape(1, 16))  # row 0 came last
