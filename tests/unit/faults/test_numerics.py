"""Faults of the row-wise operations against formulas, and what hides them."""

from dataclasses import fields

import pytest
import torch

from swarepro.checkpoint.config import RopeKind, RopeSpec
from swarepro.faults import FAULTS
from swarepro.runtime.parts import StageParts
from swarepro.runtime.routes.eager import EagerOps

HEALTHY = EagerOps()
LOCAL = RopeSpec(kind=RopeKind.DEFAULT, theta=1e4)
GLOBAL = RopeSpec(kind=RopeKind.LINEAR, theta=1e6, factor=8.0)


def ops(fault: str):
    rest = {field.name: None for field in fields(StageParts)}
    return FAULTS.get(fault).wrap(StageParts(**rest | {"ops": HEALTHY})).ops


def drawn(*shape, seed=0, dtype=torch.bfloat16):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize(
    ("fault", "local", "full"),
    [
        ("rope-factor-missing", (1e4, 1), (1e6, 1)),
        ("rope-factor-on-local", (1e4, 8), (1e6, 8)),
        ("local-theta-on-all", (1e4, 1), (1e4, 8)),
        ("global-theta-on-all", (1e6, 1), (1e6, 8)),
    ],
)
def test_frequencies_are_those_of_the_wrong_theta_or_factor(fault, local, full):
    for spec, (theta, factor) in ((LOCAL, local), (GLOBAL, full)):
        found = ops(fault).rotary_frequencies(spec, 16).double()
        wanted = torch.tensor([theta ** (-i / 8) / factor for i in range(8)], dtype=torch.float64)
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=0)  # float32 arithmetic


def normed(on, x, weight, *, adds_one=True):
    return on.rms_norm(x, weight, eps=1e-6, adds_one=adds_one)


def exact(x, weight):
    """RMSNorm in float64."""
    wide = x.double()
    return wide / (wide.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * (1 + weight.double())


@pytest.mark.parametrize(
    ("fault", "dim"), [("variance-in-dtype", 1), ("one-plus-weight-in-dtype", 0)]
)
def test_a_norm_in_the_runs_dtype_errs_more_and_not_in_float32(fault, dim):
    """A rounded variance makes whole rows too large or small, a rounded weight whole columns."""
    x, weight = drawn(96, 96), drawn(96, seed=1) * 0.1
    wanted = exact(x, weight)
    right, found = normed(HEALTHY, x, weight), normed(ops(fault), x, weight)
    sizes = [(y.double() * wanted).sum(dim) / wanted.pow(2).sum(dim) for y in (right, found)]
    errors = [(size - 1).abs().mean().item() for size in sizes]
    assert errors[1] > 3 * errors[0]
    wide = [normed(on, x.float(), weight.float()) for on in (HEALTHY, ops(fault))]
    assert torch.equal(*wide)


def test_weights_of_0_hide_that_one_is_added_in_the_runs_dtype():
    x, on = drawn(64, 96), ops("one-plus-weight-in-dtype")
    for weight, same in ((torch.zeros(96), True), (torch.full((96,), 0.003), False)):
        rows = [normed(each, x, weight.bfloat16()) for each in (HEALTHY, on)]
        assert torch.equal(*rows) is same
    assert torch.equal(*[normed(y, x, drawn(96), adds_one=False) for y in (HEALTHY, on)])


@pytest.mark.parametrize(("fault", "power"), [("embed-scale-missing", 0), ("embed-scale-twice", 2)])
def test_the_embedding_is_scaled_as_often_as_the_fault_says(fault, power):
    ids, table = torch.tensor([3, 0, 3]), drawn(8, 96)
    found = ops(fault).embed(ids, table, scale=96**0.5).double()
    wanted = table.double()[ids] * 96 ** (power / 2)
    torch.testing.assert_close(found, wanted, rtol=2**-6, atol=0)  # three roundings to bf16


@pytest.mark.parametrize(
    ("hidden", "dtype", "same"),
    [(96, torch.bfloat16, False), (64, torch.bfloat16, True), (96, torch.float32, True)],
)
def test_a_scale_that_is_exact_in_the_dtype_hides_that_it_is_not_rounded(hidden, dtype, same):
    table = drawn(8, hidden, dtype=dtype)
    ids, on = torch.arange(8), ops("embed-scale-not-rounded")
    rows = [each.embed(ids, table, scale=hidden**0.5) for each in (HEALTHY, on)]
    assert torch.equal(*rows) is same
    wanted = table.double() * hidden**0.5
    torch.testing.assert_close(rows[1].double(), wanted, rtol=2**-8, atol=0)  # rounded once


def test_a_head_that_is_not_tied_is_the_same_in_every_step_and_of_every_weight():
    x, on = drawn(2, 96), ops("head-not-tied")
    first = on.unembed(x, drawn(512, 96, seed=5))
    assert torch.equal(first, on.unembed(x, drawn(512, 96, seed=6)))
    assert not torch.equal(first, HEALTHY.unembed(x, drawn(512, 96, seed=5)))
    assert torch.equal(on.linear(x, x), HEALTHY.linear(x, x))  # no other projection is touched


def test_a_cap_that_is_dropped_leaves_logits_as_they_are():
    logits = drawn(1, 8) * 40
    assert torch.equal(ops("final-softcap-dropped").softcap(logits, 30.0), logits)
    assert HEALTHY.softcap(logits, 30.0).abs().max() < logits.abs().max()


def test_large_branches_overflow_in_float16_alone():
    x, weight = drawn(4, 96), torch.zeros(96, dtype=torch.bfloat16)
    for dtype, finite in ((torch.float16, False), (torch.bfloat16, True), (torch.float32, True)):
        stream = torch.zeros(4, 96, dtype=dtype)
        for layer in range(12):
            branch = drawn(4, 96, seed=layer, dtype=dtype)
            stream = ops("large-branches").rms_norm(
                branch, weight.to(dtype), eps=1e-6, adds_one=True, residual=stream
            )
        assert bool(stream.isfinite().all()) is finite
    alone = [normed(on, x, weight) for on in (HEALTHY, ops("large-branches"))]
    assert torch.equal(*alone)  # only what is added to the stream is large
