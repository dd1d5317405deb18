"""Ranks, fused parts and layouts against torch's own operations, and what does not go together."""

import tomllib

import msgspec
import numpy as np
import pytest
import torch

from swarepro.errors import ForeignError
from swarepro.foreign.gather import gather
from swarepro.foreign.maps import ForeignMap
from swarepro.foreign.matching import match_names
from swarepro.foreign.numbers import add
from swarepro.foreign.rules import check_map
from swarepro.foreign.tensors import Found

SIZES = {"H": 4, "K": 2, "D": 3}


def compiled(body: str, sizes=SIZES):
    sizes_text = "\n".join(f"{letter} = {size}" for letter, size in sizes.items())
    text = f'engine = "t"\n[sizes]\n{sizes_text}\n[[points]]\n{body}\n'
    return check_map(msgspec.convert(tomllib.loads(text), ForeignMap), "map")


def gathered(body: str, tensors: dict[str, np.ndarray], *, sizes=SIZES, dtype="F32", dtypes=None):
    of = dtypes or {}
    found = [
        Found(
            name=name,
            shown=name,
            dtype=of.get(name, dtype),
            shape=array.shape,
            load=lambda a=array: a,
        )
        for name, array in tensors.items()
    ]
    matching = match_names(compiled(body, sizes), found)
    assert (matching.ambiguous, matching.incomplete) == ((), ())
    (matched,) = matching.matched
    return gather(matched, matching.num_ranks)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


QKV = """
point = "L{layer}_qkv_projected"
name = "r{rank}.{layer}"
ranks = "Q"
parts = [{ q = "H D" }, { k = "K D" }, { v = "K D" }]
"""


@pytest.mark.parametrize("world", [1, 2, 4])
def test_fused_qkv_of_ranks_is_the_whole_projection(world):
    """Each rank has its heads of q, of k and of v; with 4 ranks, two have the same kv head."""
    q, k, v = random(5, 4 * 3), random(5, 2 * 3, seed=1), random(5, 2 * 3, seed=2)

    def shard(array: np.ndarray, heads: int, rank: int) -> np.ndarray:
        first = rank * heads // world
        return array[:, first * 3 : (first + max(1, heads // world)) * 3]

    shards = {
        f"r{rank}.0": np.concatenate(
            [shard(q, 4, rank), shard(k, 2, rank), shard(v, 2, rank)], axis=1
        )
        for rank in range(world)
    }
    found = gathered(QKV, shards)
    assert found.array.tobytes() == np.concatenate([q, k, v], axis=1).tobytes()


def test_ranks_that_share_a_kv_head_must_have_the_same():
    shards = {f"r{rank}.0": np.zeros((5, 9), np.float32) for rank in range(4)}
    gathered(QKV, shards)
    shards["r1.0"][0, 5] = 1.0  # k of the head that rank 0 has, too
    with pytest.raises(ForeignError, match="ranks 0 and 1 have the same heads and other values"):
        gathered(QKV, shards)


def test_kept_parts_stand_in_the_order_of_the_point():
    fused = random(5, 24)
    v = gathered(
        QKV.replace("L{layer}_qkv_projected", "L{layer}_v_normed") + 'keep = ["v"]\nlayout = "T Q"',
        {"r0.0": fused},
    )
    assert v.shape == (5, 2, 3)
    assert v.array.tobytes() == fused[:, 18:].tobytes()
    turned = gathered(QKV + 'keep = ["v", "q", "k"]', {"r0.0": fused})
    wanted = np.concatenate([fused[:, 18:], fused[:, :12], fused[:, 12:18]], axis=1)
    assert turned.array.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("world", [1, 2])
def test_gate_and_up_of_ranks(world):
    gate, up = random(5, 6), random(5, 6, seed=1)
    shards = {
        f"r{rank}.0": np.concatenate(
            [np.split(gate, world, 1)[rank], np.split(up, world, 1)[rank]], axis=1
        )
        for rank in range(world)
    }
    body = """
    point = "L{layer}_mlp_gate_up"
    name = "r{rank}.{layer}"
    ranks = "F"
    parts = [{ gate = "I" }, { up = "I" }]
    """
    found = gathered(body, shards, sizes={"I": 6})
    assert found.array.tobytes() == np.concatenate([gate, up], axis=1).tobytes()


@pytest.mark.parametrize(
    ("layout", "turn"),
    [
        ("T H D", lambda x: x),
        ("T (H D)", lambda x: x.reshape(5, -1)),
        ("(T H) D", lambda x: x.reshape(-1, 3)),
        ("H T D", lambda x: x.transpose(1, 0, 2)),
        ("1 H T D", lambda x: x.transpose(1, 0, 2)[None]),
        ("D T H", lambda x: x.transpose(2, 0, 1)),
        ("T (D H)", lambda x: x.transpose(0, 2, 1).reshape(5, -1)),
        ("1 1 T 1 (H D)", lambda x: x.reshape(1, 1, 5, 1, -1)),
    ],
)
@pytest.mark.parametrize("world", [1, 2])
def test_layouts(layout, turn, world):
    whole = random(5, 4, 3)
    body = f"""
    point = "L{{layer}}_attention_output"
    name = "r{{rank}}.{{layer}}"
    layout = "{layout}"
    ranks = "H"
    """
    parts = np.split(whole, world, axis=1)
    shards = {f"r{rank}.0": turn(part) for rank, part in enumerate(parts)}
    found = gathered(body, shards)
    assert found.shape == (5, 4, 3)
    assert np.ascontiguousarray(found.array).tobytes() == whole.tobytes()


@pytest.mark.parametrize(
    ("shape", "layout", "sizes", "why"),
    [
        ((5, 12), "T H D", SIZES, "has 3 dimensions"),
        ((5, 13), "T (H D)", SIZES, "a dimension of 13"),
        ((5, 4, 4), "T H D", SIZES, "wanted D = 3"),
        ((2, 5, 12), "1 T (H D)", SIZES, "wanted 1"),
        ((5, 12), "T (H D)", {}, "sizes of H and D are not known"),
        ((5, 13), "T (H D)", {"D": 3}, "wanted H = ? x D = 3"),
    ],
)
def test_shapes_that_do_not_fit(shape, layout, sizes, why):
    body = f'point = "L{{layer}}_attention_output"\nname = "{{layer}}"\nlayout = "{layout}"'
    with pytest.raises(ForeignError) as caught:
        gathered(body, {"0": random(*shape)}, sizes=sizes)
    assert why in str(caught.value)
    assert "L0_attention_output of step 0 (0)" in str(caught.value)


def test_q_and_k_after_rope_lie_one_after_another():
    body = """
    point = "L{layer}_rotary_applied"
    name = ["{layer}.q", "{layer}.k"]
    layout = "T (J D)"
    join = "J"
    """
    q, k = random(5, 12), random(5, 6, seed=1)
    found = gathered(body, {"0.k": k, "0.q": q})
    assert found.shape == (5, 6, 3)
    wanted = np.concatenate([q.reshape(5, 4, 3), k.reshape(5, 2, 3)], axis=1)
    assert found.array.tobytes() == wanted.tobytes()


REPLICATED = 'point = "L{layer}_o_proj"\nname = "r{rank}.{layer}"'


def test_every_rank_has_the_whole_tensor_or_it_is_said():
    whole = random(5, 8)
    whole[0, 0] = np.nan
    found = gathered(REPLICATED, {"r0.0": whole, "r1.0": whole.copy()})
    assert found.array.tobytes() == whole.tobytes()
    other = whole.copy()
    other[4, 7] = -other[4, 7]
    with pytest.raises(ForeignError, match="rank 1 does not have what rank 0 has"):
        gathered(REPLICATED, {"r0.0": whole, "r1.0": other})


def test_zeros_of_both_signs_are_not_the_same_bytes():
    plus, minus = np.zeros((1, 2), np.float32), -np.zeros((1, 2), np.float32)
    with pytest.raises(ForeignError, match="rank 1"):
        gathered(REPLICATED, {"r0.0": plus, "r1.0": minus})


SUM = """
point = "after_layer_{layer}"
name = ["{layer}.out", "{layer}.residual"]
plane = "sum"
join = "add"
"""


@pytest.mark.parametrize("name", ["BF16", "F16", "F32", "F64"])
def test_sums_are_those_of_torch(name):
    """One rounding to nearest, ties to even; infinities and NaN included."""
    dtype = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32,
             "F64": torch.float64}[name]  # fmt: skip
    torch.manual_seed(0)
    left = (torch.randn(4000, dtype=torch.float64) * 10.0 ** torch.randint(-8, 9, (4000,))).to(
        dtype
    )
    right = (torch.randn(4000, dtype=torch.float64) * 10.0 ** torch.randint(-8, 9, (4000,))).to(
        dtype
    )
    special = torch.tensor([float("inf"), float("-inf"), float("nan"), 0.0, -0.0], dtype=dtype)
    left[:5], right[:5] = special, special.flip(0)
    wanted = left + right
    as_bits = torch.int64 if name == "F64" else torch.int32 if name == "F32" else torch.int16
    views = {"BF16": "<u2", "F16": "<f2", "F32": "<f4", "F64": "<f8"}[name]
    total = add(
        left.view(as_bits).numpy().view(views), right.view(as_bits).numpy().view(views), name
    )
    same = total.view(np.dtype(f"<i{total.dtype.itemsize}")) == wanted.view(as_bits).numpy()
    assert (same | wanted.isnan().numpy()).all()
    is_nan = torch.from_numpy(total.view(np.dtype(f"<i{total.dtype.itemsize}")).copy()).view(dtype)
    assert torch.equal(is_nan.isnan(), wanted.isnan())


def test_a_residual_and_what_a_layer_adds_are_added():
    out, residual = random(5, 8), random(5, 8, seed=1)
    found = gathered(SUM, {"0.out": out, "0.residual": residual})
    assert found.array.tobytes() == (out + residual).tobytes()
    with pytest.raises(ForeignError, match="are not added"):
        gathered(SUM, {"0.out": out, "0.residual": residual[:4]})
    with pytest.raises(ForeignError, match="dtype I32 are not added"):
        gathered(SUM, {"0.out": out, "0.residual": residual}, dtype="I32")


def test_tensors_of_two_dtypes_are_not_one_boundary():
    """Float16 and bfloat16 are as wide: their bits would lie beside each other unseen."""
    half = {"r0.0": np.zeros((5, 8), "<f2"), "r1.0": np.zeros((5, 8), "<f2")}
    with pytest.raises(ForeignError, match="the ranks are F16 and BF16"):
        gathered(REPLICATED, half, dtypes={"r0.0": "F16", "r1.0": "BF16"})
    planes = {"0.out": random(5, 8), "0.residual": random(5, 8)}
    with pytest.raises(ForeignError, match="its tensors are F32 and I32"):
        gathered(SUM, planes, dtypes={"0.residual": "I32"})


def test_bits_in_another_type_are_given_theirs():
    bits = np.arange(10, dtype=np.uint16).reshape(5, 2)
    found = gathered(REPLICATED + '\ndtype = "BF16"', {"r0.0": bits}, dtype="U16")
    assert (found.dtype, found.array.tobytes()) == ("BF16", bits.tobytes())
    with pytest.raises(ForeignError, match="U16 cannot hold the bits of F32"):
        gathered(REPLICATED + '\ndtype = "F32"', {"r0.0": bits}, dtype="U16")
