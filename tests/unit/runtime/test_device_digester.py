"""The digester of compiled routes, on interpreted kernels: the same code, another device."""

from importlib.util import find_spec

import pytest
import torch

from swarepro import points
from swarepro.backend import Backend
from swarepro.bundle.device_digest import DeviceDigest
from swarepro.bundle.schema import CaptureEntry
from swarepro.capture import MemorySink, Recorder, raw_bytes
from swarepro.points import Level

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
NAMES = {torch.bfloat16: "BF16", torch.float32: "F32", torch.int64: "I64"}


@pytest.fixture
def digester():
    Backend(device="cpu", triton="interpret").activate()
    from swarepro.runtime.routes.device_digest import DeviceDigester

    return DeviceDigester(torch.device("cpu"))


def expected(tensor):
    state = DeviceDigest(NAMES[tensor.dtype], tuple(tensor.shape))
    state.update(bytes(raw_bytes(tensor)))
    return state.hexdigest()


def test_digests_come_in_order_as_a_reader_computes_them(digester):
    tensors = [
        torch.arange(6.0).reshape(2, 3),
        torch.arange(12).reshape(3, 4).t(),
        torch.arange(6.0).bfloat16().reshape(2, 3)[:, 1:],
        torch.tensor(5),
    ]
    for tensor in tensors:
        digester.submit(tensor)
    assert list(digester.collect()) == [expected(tensor) for tensor in tensors]
    assert list(digester.collect()) == []
    digester.submit(tensors[1])
    assert list(digester.collect()) == [expected(tensors[1])]


def test_a_tensor_is_digested_as_it_was_when_it_was_submitted(digester):
    tensor = torch.arange(6.0)
    before = expected(tensor)
    digester.submit(tensor)
    tensor.zero_()
    assert list(digester.collect()) == [before]


def test_more_tensors_than_a_table_has_rows(digester, monkeypatch):
    from swarepro.runtime.routes import device_digest

    monkeypatch.setattr(device_digest, "_ROWS", 4)
    tensors = [torch.full((2,), float(i)) for i in range(11)]
    for tensor in tensors:
        digester.submit(tensor)
    assert list(digester.collect()) == [expected(tensor) for tensor in tensors]


def test_a_witness_is_given_the_digests_that_the_records_have(digester):
    """Asked for at every tensor and not once a step, they are the same."""
    seen, found = [], []

    class Witness:
        def see(self, captured, digest, copy):
            seen.append((captured.name, digest))

    capture = CaptureEntry(level=Level.OP, store="digest", points=("*",), layers=(), steps=())
    for witness in (None, Witness()):
        sink = MemorySink([])
        recorder = Recorder(capture, sink, digester, witness=witness)
        tap = recorder.tap(0, is_last=True)
        recorder.begin_step(0)
        for layer in (0, 1, 2):
            tap(points.O_PROJ, torch.full((2, 3), float(layer)), layer, session=0)
        recorder.end_step()
        found.append(sink.records)
    assert found[0] == found[1]
    assert seen == [(record.name, record.digest) for record in found[0]]
    assert {record.algorithm for record in found[0]} == {"swd_128"}


@pytest.mark.parametrize("shape", [(3, 5), (1, 2, 3, 4), (0, 2, 3, 4), (3, 0), (0, 0), (4,), (0,)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_rows_have_the_digests_that_they_have_alone(digester, shape, dtype):
    from swarepro_kernels.reference import digest

    tensor = torch.arange(float(torch.Size(shape).numel())).reshape(shape).to(dtype)
    found = digester.rows(tensor)
    assert (found.dtype, tuple(found.shape)) == (torch.int64, shape[:1])
    assert found.tolist() == [int(digest(row.clone())[0]) for row in tensor]
