"""What is captured, in which order, how large, and that a copy is taken."""

import pytest
import torch

from swarepro import points
from swarepro.bundle.digest import digest_bytes
from swarepro.bundle.schema import CaptureEntry
from swarepro.capture import MemorySink, Recorder, raw_bytes
from swarepro.points import Level


def entry(level=Level.OP, store="digest", globs=("*",), layers=(), steps=()) -> CaptureEntry:
    return CaptureEntry(level=level, store=store, points=globs, layers=layers, steps=steps)


class KeepingSink(MemorySink):
    """Keeps the bytes, too."""

    def __init__(self):
        super().__init__([])
        self.data = []

    def add(self, record, data):
        super().add(record, data)
        self.data.append(data)


def names(capture: CaptureEntry, *, is_last=True) -> list[str]:
    sink = MemorySink([])
    recorder = Recorder(capture, sink)
    tap = recorder.tap(0, is_last=is_last)
    for step in (0, 1):
        recorder.begin_step(step)
        tap(points.POSITIONS, torch.arange(3), session=0, row_start=0)
        for layer in (0, 1):
            tap(points.O_PROJ, torch.ones(3, 2), layer, session=0, row_start=0)
            tap(points.AFTER_LAYER, torch.ones(3, 2), layer, session=0, row_start=0)
        tap(points.LOGITS, torch.ones(1, 4), session=0, row_start=2)
        recorder.end_step()
    return [f"{r.step} {r.name}" for r in sink.records]


def test_levels():
    full = names(entry())
    assert full[:6] == [
        "0 positions",
        "0 L0_o_proj",
        "0 after_layer_0",
        "0 L1_o_proj",
        "0 after_layer_1",
        "0 logits",
    ]
    boundary = names(entry(Level.BOUNDARY))
    assert "0 after_layer_1" in boundary
    assert "0 L0_o_proj" not in boundary
    assert names(entry(Level.OFF)) == ["0 logits", "1 logits"]
    assert names(entry(Level.OFF), is_last=False) == []


def test_filters():
    assert names(entry(globs=("L?_o_proj",))) == [
        "0 L0_o_proj",
        "0 L1_o_proj",
        "1 L0_o_proj",
        "1 L1_o_proj",
    ]
    assert names(entry(globs=("*o_proj",), layers=(1,), steps=(1,))) == ["1 L1_o_proj"]
    assert names(entry(globs=("nothing",))) == []


def test_wants_agrees_with_what_is_recorded():
    recorder = Recorder(entry(globs=("L1_*",), steps=(1,)), MemorySink([]))
    tap = recorder.tap(0, is_last=True)
    recorder.begin_step(0)
    assert not tap.wants(points.O_PROJ, 1)
    recorder.begin_step(1)
    assert tap.wants(points.O_PROJ, 1)
    assert not tap.wants(points.O_PROJ, 0)


def test_a_stored_tensor_is_a_copy_taken_at_once():
    sink = KeepingSink()
    recorder = Recorder(entry(store="tensor"), sink)
    tap = recorder.tap(0, is_last=True)
    recorder.begin_step(0)
    live = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    tap(points.O_PROJ, live, 0, session=0, row_start=0)
    live.zero_()
    recorder.end_step()
    expected = torch.arange(6, dtype=torch.float32).numpy().tobytes()
    assert bytes(sink.data[0]) == expected
    assert sink.records[0].digest == digest_bytes(expected)


def test_digests_alone_keep_no_bytes():
    sink = KeepingSink()
    recorder = Recorder(entry(store="digest"), sink)
    recorder.begin_step(0)
    recorder.tap(0, is_last=True)(points.O_PROJ, torch.ones(2, 3), 0, session=0, row_start=0)
    recorder.end_step()
    assert sink.data == [None]


def test_occurrences_count_within_a_step():
    sink = MemorySink([])
    recorder = Recorder(entry(), sink)
    for step in (0, 1):
        recorder.begin_step(step)
        for stage in (0, 1, 2):
            tap = recorder.tap(stage, is_last=stage == 2)
            tap(points.POSITIONS, torch.arange(2), session=0, row_start=0)
        recorder.end_step()
    assert [(r.step, r.stage, r.occurrence, r.key) for r in sink.records[:3]] == [
        (0, 0, 0, "positions"),
        (0, 1, 1, "positions#1"),
        (0, 2, 2, "positions#2"),
    ]
    assert [r.occurrence for r in sink.records[3:]] == [0, 1, 2]


def test_records_come_in_declared_order_and_then_in_that_of_the_spans():
    """A batch computes block by block, and a stage ends before the next one begins."""
    sink = KeepingSink()
    recorder = Recorder(entry(store="tensor"), sink)
    taps = [recorder.tap(stage, is_last=stage == 1) for stage in (0, 1)]
    recorder.begin_step(0)
    called = []
    for stage, layer in ((0, 0), (0, 1), (1, 2)):
        for session in (7, 3):  # in the order of the step's spans, one block after the other
            for point in (points.QKV_PROJECTED, points.O_PROJ):
                rows = torch.full((2,), 100.0 * stage + 10 * layer + session)
                called.append(f"{stage} {session} {point.concrete(layer)}")
                taps[stage](point, rows, layer, session=session, row_start=session)
    recorder.end_step()
    found = [f"{r.stage} {r.session} {r.name}" for r in sink.records]
    assert found[:4] == [
        "0 7 L0_qkv_projected",
        "0 3 L0_qkv_projected",
        "0 7 L0_o_proj",
        "0 3 L0_o_proj",
    ]
    assert found != called
    assert sorted(found) == sorted(called)
    assert [r.index for r in sink.records] == list(range(12))
    assert [r.occurrence for r in sink.records] == [0, 1] * 6
    for record, data in zip(sink.records, sink.data, strict=True):
        value = 100.0 * record.stage + 10 * record.layer + record.session
        assert bytes(data) == torch.full((2,), value).numpy().tobytes()
        assert record.digest == digest_bytes(bytes(data))
        assert record.row_start == record.session


def test_each_sink_has_records_that_begin_at_0():
    """A trial's records must not tell how many trials ran before it in its process."""
    recorder = Recorder(entry(store="digest"), KeepingSink())
    tap = recorder.tap(0, is_last=True)
    for step in range(3):
        sink = KeepingSink()
        recorder.give_to(sink)
        recorder.begin_step(step)
        for layer in (0, 1):
            tap(points.O_PROJ, torch.zeros(2), layer, session=0)
        recorder.end_step()
        assert [record.index for record in sink.records] == [0, 1]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).reshape(3, 4).t(),
        torch.arange(12.0).bfloat16().reshape(3, 4)[:, 1:3],
        torch.tensor(5),
        torch.empty(0, 4),
        torch.arange(5) > 2,
    ],
    ids=["transposed", "strided", "scalar", "empty", "bool"],
)
def test_raw_bytes_are_row_major_values(tensor):
    copy = tensor.contiguous().clone().reshape(-1)
    assert bytes(raw_bytes(tensor)) == copy.view(torch.uint8).numpy().tobytes()
    assert len(raw_bytes(tensor)) == tensor.numel() * tensor.element_size()


class Keeping:
    """A witness that copies whatever it sees."""

    def __init__(self):
        self.seen = []

    def see(self, captured, digest, copy):
        self.seen.append((captured, digest, copy()))


def test_a_witness_sees_each_tensor_as_it_is_when_it_is_captured():
    witness, sink = Keeping(), MemorySink([])
    recorder = Recorder(entry(), sink, witness=witness)
    tap = recorder.tap(0, is_last=True)
    recorder.begin_step(3)
    tensor = torch.zeros(4)
    tap(points.AFTER_LAYER, tensor, 1, session=0)
    tensor += 1
    tap(points.O_PROJ, tensor, 0, session=2, row_start=5)
    recorder.end_step()
    wanted = [torch.zeros(4).numpy().tobytes(), torch.ones(4).numpy().tobytes()]
    assert [bytes(data) for _, _, data in witness.seen] == wanted
    second = witness.seen[1][0]
    assert (second.name, second.step, second.session) == ("L0_o_proj", 3, 2)
    assert (second.dtype, second.shape, second.row_start) == ("F32", (4,), 5)
    # As captured; the records are in execution order.
    digests = [digest for _, digest, _ in witness.seen]
    assert digests == [digest_bytes(data) for data in wanted]
    assert [record.digest for record in sink.records] == digests[::-1]


def test_records_are_the_same_with_a_witness():
    found = []
    for witness in (None, Keeping()):
        sink = MemorySink([])
        recorder = Recorder(entry(), sink, witness=witness)
        tap = recorder.tap(0, is_last=True)
        for step in (0, 1):
            recorder.begin_step(step)
            for layer in (1, 0):
                tap(points.O_PROJ, torch.full((2, 3), step + layer), layer, session=0)
            recorder.end_step()
        found.append(sink.records)
    assert found[0] == found[1]
    assert len(found[0]) == 4
