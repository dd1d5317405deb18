"""A schedule reaches every launch of the Triton routes, each with a key of its own."""

from importlib.util import find_spec

import pytest
import torch

from swarepro.backend import Backend
from swarepro.plan import Phase
from swarepro.runtime.parts import AttentionCall, StoreContext
from swarepro.runtime.routes import build_route

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


def call(phase):
    rows = 1 if phase is Phase.DECODE else 3
    pool = torch.ones(2, 9, 1, 16)
    return AttentionCall(
        phase=phase,
        layer=0,
        q=torch.ones(rows, 2, 16),
        k=torch.ones(rows, 1, 16),
        v=torch.ones(rows, 1, 16),
        k_cache=pool[0],
        v_cache=pool[1],
        slots=torch.arange(1, 5 + rows),
        window_left=None,
        scale=1.0,
        softcap=None,
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


@pytest.mark.parametrize("route_name", ["triton-split", "triton-paged"])
@pytest.mark.parametrize("phase", list(Phase))
def test_attention_launches(route_name, phase):
    route, schedule = parts(route_name)
    route.attention.attend(call(phase))
    is_split_decode = route_name == "triton-split" and phase is Phase.DECODE
    assert len(schedule.asked) == (2 if is_split_decode else 1)  # a decode also reduces


def test_the_store_has_the_eager_routes_order():
    context = StoreContext(session=4, step=5, layer=6)
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
