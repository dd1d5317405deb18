"""The row-wise kernels against their eager twins and against float64 formulas.

Tolerances, relative: one unit in the last place of the dtype at most, because both sides compute in
float32 and round at the same places, so that they differ where a value lies next to a rounding
boundary; in float32 a few units, from the order of a sum and from exp. What only moves, multiplies
or adds once is compared by bits.
"""

import math

import pytest
import torch
import triton
import triton.language as tl

from swarepro_kernels import gelu_tanh_mul, reference, rms_norm, rope, softcap
from swarepro_kernels.launch import launch, launch_tables
from swarepro_kernels.tile import narrow, program_id, tanh, widen
from tests.kernels.program_orders import ORDERS

TOLERANCE = {torch.bfloat16: 2**-7, torch.float16: 2**-10, torch.float32: 2e-6}
BITS = {torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float32: torch.int32}
DTYPES = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)

# Outer rows, inner rows, columns: (tokens, heads, head_dim), or one inner row for hidden states.
SHAPES = [(1, 1, 16), (3, 2, 32), (65, 1, 96), (9, 3, 64), (2, 16, 256), (5, 8, 512), (2, 1, 2560)]


def draw(*shape, dtype, device, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype).to(device)


def inside_nan(x):
    """Return x's values as a view with contiguous rows, and NaN everywhere around it."""
    outer, inner, columns = x.shape
    room = torch.full((outer, inner + 3, columns + 16), math.nan, dtype=x.dtype, device=x.device)
    view = room[:, 2 : 2 + inner, :columns]
    view.copy_(x)
    return view


def same(first, second):
    """Return whether shapes, dtypes and all bits are the same."""
    return first.dtype == second.dtype and torch.equal(
        first.contiguous().view(BITS[first.dtype]), second.contiguous().view(BITS[first.dtype])
    )


def close(out, expected, dtype, *, units=1.0, atol=1e-6):
    assert out.dtype == dtype
    torch.testing.assert_close(
        out.double(), expected.double(), atol=atol, rtol=units * TOLERANCE[dtype]
    )


@DTYPES
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rms_norm(device, shape, dtype):
    x = inside_nan(draw(*shape, dtype=dtype, device=device))
    weight = 0.3 * draw(shape[-1], dtype=dtype, device=device, seed=1)
    residual = inside_nan(draw(*shape, dtype=dtype, device=device, seed=2))
    wide = x.double()
    exact = wide / torch.sqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    for scale, factor, adds_one in (
        (None, 1.0, False),
        (weight, weight.double(), False),
        (weight, 1.0 + weight.double(), True),
    ):
        out = rms_norm(x, scale, eps=1e-6, adds_one=adds_one)
        close(out, reference.rms_norm(x, scale, eps=1e-6, adds_one=adds_one), dtype)
        close(out, exact * factor, dtype)
        fused = rms_norm(x, scale, eps=1e-6, adds_one=adds_one, residual=residual)
        assert same(fused, residual + out)  # two roundings, as in two steps
        twin = reference.rms_norm(x, scale, eps=1e-6, adds_one=adds_one, residual=residual)
        close(fused, twin, dtype, atol=4 * TOLERANCE[dtype])  # a unit of the larger summand


@DTYPES
def test_the_twins_fused_add_is_its_two_steps(dtype):
    x, residual = (draw(7, 40, dtype=dtype, device="cpu", seed=seed) for seed in range(2))
    two_steps = residual + reference.rms_norm(x, None, eps=1e-6, adds_one=False)
    assert same(reference.rms_norm(x, None, eps=1e-6, adds_one=False, residual=residual), two_steps)


def test_one_plus_weight_is_summed_in_float32(device):
    """In bf16 ``1 + w`` loses w's last bits; w = 15.8125 shows it (16.8125 is not a bf16)."""
    x = torch.ones(1, 4, device=device)
    weight = torch.full((4,), 15.8125, dtype=torch.bfloat16, device=device)
    out = rms_norm(x, weight, eps=0.0, adds_one=True)
    torch.testing.assert_close(out.cpu(), torch.full((1, 4), 16.8125), atol=4e-6, rtol=0)


@DTYPES
@pytest.mark.parametrize("shape", [s for s in SHAPES if s[2] <= 512], ids=str)
def test_rope_gives_the_twins_bits(device, shape, dtype):
    """Partial rotary among them: pairs of frequency zero come out as they went in."""
    tokens, _, head_dim = shape
    x = inside_nan(draw(*shape, dtype=dtype, device=device))
    angles = draw(tokens, head_dim // 2, dtype=torch.float64, device=device, seed=1) * 3
    angles[:, head_dim // 8 :] = 0.0
    tables = torch.cat([angles.cos(), angles.sin()], dim=1).to(dtype)
    cos, sin = tables.chunk(2, dim=1)  # their rows are not contiguous with each other
    out = rope(x, cos, sin)
    assert same(out, reference.rope(x, cos, sin))
    plain = slice(head_dim // 8, head_dim // 2)
    assert torch.equal(out[..., plain], x[..., plain])
    first, second = x.double().chunk(2, -1)
    c, s = cos.double()[:, None], sin.double()[:, None]
    exact = torch.cat([first * c - second * s, second * c + first * s], dim=-1)
    close(out, exact, dtype, atol=2 * TOLERANCE[dtype])


@DTYPES
@pytest.mark.parametrize("shape", [(1, 1, 2), (5, 1, 192), (2, 3, 2100)], ids=str)
def test_gelu_tanh_mul(device, shape, dtype):
    x = inside_nan(draw(*shape, dtype=dtype, device=device) * 3)
    out = gelu_tanh_mul(x)
    gate, up = x.double().chunk(2, -1)
    exact = 0.5 * gate * (1 + torch.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3))) * up
    # Two roundings; left of -2, 1 + tanh cancels, in the twin as here, hence the absolute part.
    close(out, reference.gelu_tanh_mul(x), dtype, units=2, atol=8e-6)
    close(out, exact, dtype, units=2, atol=8e-6)


@DTYPES
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 2, 70), (2, 1, 5000)], ids=str)
def test_softcap(device, shape, dtype):
    x = inside_nan(draw(*shape, dtype=dtype, device=device) * 40)
    out = softcap(x, 30.0)
    close(out, reference.softcap(x, 30.0), dtype, units=2)
    close(out, 30.0 * torch.tanh(x.double() / 30.0), dtype, units=3)
    around = x._base.clone()
    assert softcap(x, 30.0, out=x) is x
    assert same(x, out)
    x.copy_(around[:, 2 : 2 + shape[1], : shape[2]])
    assert same(x._base, around)  # nothing but x was written


CALLS = {
    "rms_norm": (rms_norm, lambda x: {"weight": x[0, 0], "eps": 1e-6, "adds_one": True}),
    "rms_norm_residual": (
        rms_norm,
        lambda x: {"weight": None, "eps": 1e-6, "adds_one": False, "residual": x.flip(0)},
    ),
    "rope": (rope, lambda x: {"cos": x[:, 0, ::2].contiguous(), "sin": x[:, 0, 1::2].contiguous()}),
    "gelu_tanh_mul": (gelu_tanh_mul, lambda x: {}),
    "softcap": (softcap, lambda x: {"cap": 2.0}),
}


@pytest.mark.parametrize("name", CALLS)
def test_no_order_of_programs_changes_a_bit(device, name):
    """Every call has several programs; in the interpreter they run in the order given."""
    call, arguments = CALLS[name]
    x = draw(11, 3, 512, dtype=torch.bfloat16, device=device)
    counts = []

    def counted(order):
        return lambda num_programs: counts.append(num_programs) or order(num_programs)

    out = call(x, **arguments(x))
    for order in ORDERS:
        assert same(out, call(x, **arguments(x), order=counted(order)))
    assert min(counts) > 5


@pytest.mark.parametrize("name", CALLS)
def test_a_row_of_nan_stays_in_its_row(device, name):
    call, arguments = CALLS[name]
    x = draw(9, 2, 64, dtype=torch.float32, device=device)
    dirty = x.clone()
    dirty[4] = math.nan
    given = arguments(x)
    clean, out = call(x, **given), call(dirty, **given)
    others = [row for row in range(9) if row != 4]
    assert same(clean[others], out[others])
    assert out[4].isnan().all()


@pytest.mark.parametrize("name", ["rms_norm", "gelu_tanh_mul", "softcap"])
def test_a_row_does_not_depend_on_the_rows_beside_it(device, name):
    call, arguments = CALLS[name]
    x = draw(9, 2, 96, dtype=torch.bfloat16, device=device)
    given = arguments(x)
    assert same(call(x, **given)[3:4], call(x[3:4], **given))


def test_no_rows_are_no_launch(device):
    x = torch.zeros(0, 2, 16, dtype=torch.bfloat16, device=device)
    table = torch.zeros(0, 8, dtype=torch.bfloat16, device=device)
    for out in (
        rms_norm(x, None, eps=1e-6, adds_one=False),
        rope(x, table, table),
        softcap(x, 2.0),
    ):
        assert out.shape == x.shape
    assert gelu_tanh_mul(x).shape == (0, 2, 8)


def test_what_does_not_fit_is_an_error(device):
    x = torch.zeros(2, 3, 16, device=device)
    with pytest.raises(ValueError, match="rms_norm: rows of 40000 do not fit; its widest tile has"):
        rms_norm(torch.zeros(1, 40000, device=device), None, eps=1e-6, adds_one=False)
    with pytest.raises(ValueError, match=r"weight \[16\]"):
        rms_norm(x, x[0, 0, :8], eps=1e-6, adds_one=False)
    with pytest.raises(ValueError, match="a residual of x's shape"):
        rms_norm(x, None, eps=1e-6, adds_one=False, residual=x[0])
    with pytest.raises(ValueError, match=r"found x torch\.float32, residual torch\.float16"):
        rms_norm(x, None, eps=1e-6, adds_one=False, residual=x.half())
    with pytest.raises(ValueError, match="one of bfloat16, float16, float32"):
        softcap(x.double(), 2.0)
    with pytest.raises(ValueError, match=r"cos and sin \[T, D / 2\] wanted"):
        rope(x, x[:, 0, :4], x[:, 0, :4])
    with pytest.raises(ValueError, match=r"\[..., 2 F\] wanted"):
        gelu_tanh_mul(x[..., :3])
    with pytest.raises(ValueError, match="with contiguous rows"):
        softcap(x[..., :8], 2.0, out=x[..., ::2])


def test_the_launch_tables_are_plain_values():
    tables = launch_tables()
    assert {"store_kv", "rms_norm", "rope", "gelu_tanh_mul", "softcap", "digest"} <= set(tables)
    for tiles in tables.values():
        columns = [tile["columns"] for tile in tiles]
        assert columns == sorted(set(columns))
        for tile in tiles:
            assert all(type(value) is int and value & value - 1 == 0 for value in tile.values())


@triton.jit
def _cast_kernel(x_ptr, out_ptr, num, order_ptr, BLOCK: tl.constexpr, HAS_ORDER: tl.constexpr):
    at = program_id(order_ptr, HAS_ORDER) * BLOCK + tl.arange(0, BLOCK)
    x = widen(tl.load(x_ptr + at, mask=at < num))
    tl.store(out_ptr + at, narrow(x, out_ptr.dtype.element_ty), mask=at < num)


def cast(x, dtype):
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    launch(
        _cast_kernel, -(-x.numel() // 4096), x, out, x.numel(), order=None, num_warps=4, BLOCK=4096
    )
    return out


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_casts_are_those_of_torch(device, dtype):
    """All values of the dtype widened, and narrowed: these, ties between them, and neighbours."""
    values = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(dtype)
    values = values[~values.isnan()].to(device)
    assert same(cast(values, torch.float32), values.float())
    low_bits = 16 if dtype is torch.bfloat16 else 13
    offsets = torch.tensor([0, 1, (1 << low_bits - 1) - 1, 1 << low_bits - 1], dtype=torch.int32)
    offsets = torch.cat([offsets, (1 << low_bits - 1) + 1 + offsets[:1]]).to(device)
    wide = (values.float().view(torch.int32)[:, None] + offsets).flatten().view(torch.float32)
    wide = wide[~wide.isnan()]
    assert same(cast(wide, dtype), wide.to(dtype))
    nan = torch.tensor([math.nan, -math.nan], device=device)
    assert cast(nan, dtype).isnan().all()


@triton.jit
def _tanh_kernel(x_ptr, out_ptr, order_ptr, BLOCK: tl.constexpr, HAS_ORDER: tl.constexpr):
    at = program_id(order_ptr, HAS_ORDER) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tanh(tl.load(x_ptr + at)))


def test_tanh_keeps_relative_accuracy(device):
    """Within 4 units in the last place from 1e-30 to 20, odd, and right at the ends."""
    size = torch.cat([torch.logspace(-30, 1.3, 8188), torch.tensor([0.0, 0.5499, 0.55, math.inf])])
    x = torch.cat([size, -size]).to(device)
    out = torch.empty_like(x)
    launch(_tanh_kernel, 4, x, out, order=None, num_warps=4, BLOCK=4096)
    torch.testing.assert_close(out.double(), torch.tanh(x.double()), atol=0, rtol=4 * 2**-23)
    assert torch.equal(out[: len(size)], -out[len(size) :])
    assert torch.equal(out.signbit(), x.signbit())
    x = torch.full((4096,), math.nan, device=device)
    launch(_tanh_kernel, 1, x, x, order=None, num_warps=4, BLOCK=4096)
    assert x.isnan().all()
