"""The row-wise twins against float64 formulas written out."""

import math

import pytest
import torch

from swarepro_kernels.reference import gelu_tanh_mul, rms_norm, rope, softcap

# One rounding to the dtype; in float32 a few roundings of values of order one.
TOLERANCE = {torch.bfloat16: 2**-7, torch.float16: 2**-10, torch.float32: 2e-6}
DTYPES = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)


def draw(*shape, dtype, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@DTYPES
@pytest.mark.parametrize("adds_one", [True, False])
@pytest.mark.parametrize("with_weight", [True, False])
def test_rms_norm(dtype, adds_one, with_weight):
    x = draw(5, 3, 96, dtype=dtype)
    weight = draw(96, dtype=dtype, seed=1) * 0.3 if with_weight else None
    wide = x.double()
    expected = wide / torch.sqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    if weight is not None:
        expected = expected * (weight.double() + (1.0 if adds_one else 0.0))
    out = rms_norm(x, weight, eps=1e-6, adds_one=adds_one)
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), expected, atol=1e-6, rtol=TOLERANCE[dtype])


def test_one_plus_weight_is_summed_in_float32():
    """In bf16 ``1 + w`` loses w's last bits; w = 15.8125 shows it (16.8125 is not a bf16)."""
    x = torch.full((1, 4), 1.0, dtype=torch.float32)
    weight = torch.full((4,), 15.8125, dtype=torch.bfloat16)
    out = rms_norm(x, weight, eps=0.0, adds_one=True)
    assert out.tolist() == [[16.8125] * 4]
    assert float((1.0 + weight)[0]) != 16.8125


@DTYPES
def test_rope_rotates_pairs_of_halves(dtype):
    x = draw(4, 3, 8, dtype=dtype)
    angles = draw(4, 4, dtype=torch.float64, seed=2)
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    out = rope(x, cos, sin).double()
    first, second = x.double().chunk(2, -1)
    c, s = cos.double()[:, None], sin.double()[:, None]
    expected = torch.cat([first * c - second * s, second * c + first * s], dim=-1)
    torch.testing.assert_close(out, expected, atol=2 * TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    plain = rope(x, torch.ones_like(cos), torch.zeros_like(sin))
    assert torch.equal(plain, x)  # frequency zero leaves a pair alone


@DTYPES
def test_gelu_tanh_mul_takes_gate_first(dtype):
    gate_up = draw(4, 12, dtype=dtype)
    gate, up = gate_up.double().chunk(2, -1)
    inner = math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)
    expected = 0.5 * gate * (1 + torch.tanh(inner)) * up
    out = gelu_tanh_mul(gate_up)
    torch.testing.assert_close(
        out.double(), expected, atol=4 * TOLERANCE[dtype], rtol=2 * TOLERANCE[dtype]
    )


def test_softcap_bounds_and_keeps_small_values():
    x = torch.tensor([-1e6, -30.0, 0.0, 0.01, 1e6])
    out = softcap(x, 30.0)
    expected = 30.0 * torch.tanh(x.double() / 30.0)
    torch.testing.assert_close(out.double(), expected, atol=1e-5, rtol=1e-6)
