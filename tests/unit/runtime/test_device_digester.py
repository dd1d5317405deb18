"""The digester of compiled routes, on interpreted kernels: the same code, another device."""

from importlib.util import find_spec

import pytest
import torch

from swarepro.backend import Backend
from swarepro.bundle.device_digest import DeviceDigest
from swarepro.capture import raw_bytes

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
