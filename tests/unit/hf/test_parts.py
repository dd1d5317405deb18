"""What hooks read is put together once, in its shape, or refused."""

import pytest
import torch

from swarepro import points
from swarepro.bundle.schema import CaptureEntry
from swarepro.capture import MemorySink, Recorder
from swarepro.errors import EngineError
from swarepro.hf.parts import SpanReading
from swarepro.hf.table import Read, Source
from swarepro.plan import Span
from swarepro.points import Level

O_PROJ = Source(point=points.O_PROJ, read=Read.OUTPUT, modules=("o",))
GATE_UP = Source(point=points.MLP_GATE_UP, read=Read.OUTPUT, modules=("a", "b"))
CACHE = Source(point=points.KV_SLICE_POST_WRITE, read=Read.CACHE)
POSITIONS = Source(point=points.POSITIONS, read=Read.POSITIONS)
WANTED = {
    (points.O_PROJ.name, 0): (3, 4),
    (points.MLP_GATE_UP.name, 0): (3, 10),
    (points.KV_SLICE_POST_WRITE.name, 0): (5, 2, 1, 2),
    (points.POSITIONS.name, None): (3,),
}


def reading() -> tuple[SpanReading, MemorySink, Recorder]:
    sink = MemorySink([])
    capture = CaptureEntry(level=Level.OP, store="digest", points=("*",), layers=(), steps=())
    recorder = Recorder(capture, sink)
    recorder.begin_step(0)
    span = Span(session=0, start=7, end=10)
    return SpanReading(span, recorder.tap(0, is_last=True), WANTED, torch.float32), sink, recorder


def test_parts_become_a_point_at_its_rows() -> None:
    own, sink, recorder = reading()
    own.take(GATE_UP, 0, torch.ones(1, 3, 6), where="b", part=1, parts=2)
    own.take(GATE_UP, 0, torch.zeros(1, 3, 4), where="a", part=0, parts=2)
    own.take(O_PROJ, 0, torch.ones(1, 3, 4), where="o")
    for part in (0, 1):
        own.take(CACHE, 0, torch.ones(1, 1, 5, 2), where="the cache", part=part, parts=2)
    for _ in range(2):  # once for each kind of layer
        own.take(POSITIONS, None, torch.arange(7, 10)[None], where="rotary")
    own.finish()
    recorder.end_step()
    assert [(r.name, r.shape, r.row_start) for r in sink.records] == [
        ("positions", (3,), 7),
        ("L0_kv_slice_post_write", (5, 2, 1, 2), 5),
        ("L0_o_proj", (3, 4), 7),
        ("L0_mlp_gate_up", (3, 10), 7),
    ]


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        (torch.ones(1, 3, 5), r"o gives L0_o_proj of shape \[3, 5\]; wanted \[3, 4\]"),
        (torch.ones(2, 3, 4), r"o gives shape \[2, 3, 4\]; wanted a batch of 1"),
        (torch.ones(4), r"o gives shape \[4\]; wanted a batch of 1"),
        (torch.ones(1, 3, 4, dtype=torch.bfloat16), "L0_o_proj in torch.bfloat16; wanted torch.f"),
        ((torch.ones(1, 3, 4),), "o gives tuple; wanted a tensor for L0_o_proj"),
        (None, "o gives NoneType; wanted a tensor"),
    ],
    ids=["shape", "batch", "rank", "dtype", "tuple", "nothing"],
)
def test_what_does_not_fit_is_refused(tensor: object, said: str) -> None:
    own, _, _ = reading()
    with pytest.raises(EngineError, match=said):
        own.take(O_PROJ, 0, tensor, where="o")


def test_twice_and_never_are_refused() -> None:
    own, _, _ = reading()
    own.take(O_PROJ, 0, torch.ones(1, 3, 4), where="o")
    with pytest.raises(EngineError, match="o gives L0_o_proj twice in one step"):
        own.take(O_PROJ, 0, torch.ones(1, 3, 4), where="o")
    with pytest.raises(EngineError, match="gives L1_o_proj, which is not expected"):
        own.take(O_PROJ, 1, torch.ones(1, 3, 4), where="o")
    own.take(POSITIONS, None, torch.arange(7, 10)[None], where="rotary")
    with pytest.raises(EngineError, match="gives positions twice"):
        own.take(POSITIONS, None, torch.arange(8, 11)[None], where="rotary")
    with pytest.raises(EngineError, match="nothing gave L0_mlp_gate_up in this step"):
        own.finish()
