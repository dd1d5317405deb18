"""Rotary frequencies against transformers' functions and the formula."""

import pytest
import torch

from swarepro.checkpoint.config import RopeKind, RopeSpec
from swarepro.runtime.rotary import RotaryTables, inverse_frequencies


@pytest.mark.parametrize("theta", [1e4, 1e6])
@pytest.mark.parametrize("factor", [1.0, 8.0])
def test_linear_scaling_divides_all_frequencies(theta, factor):
    spec = RopeSpec(kind=RopeKind.LINEAR, theta=theta, factor=factor)
    expected = torch.tensor(
        [theta ** (-2 * i / 32) / factor for i in range(16)], dtype=torch.float64
    )
    torch.testing.assert_close(
        inverse_frequencies(spec, 32).double(), expected, rtol=1e-6, atol=0.0
    )


def test_proportional_rotates_a_part_and_keeps_the_full_head_dim_in_the_exponent():
    spec = RopeSpec(kind=RopeKind.PROPORTIONAL, theta=1e6, partial_rotary_factor=0.25)
    found = inverse_frequencies(spec, 32)
    expected = [1e6 ** (-2 * i / 32) for i in range(4)] + [0.0] * 12
    torch.testing.assert_close(
        found.double(), torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=0.0
    )


def test_default_ignores_the_factor():
    plain = RopeSpec(kind=RopeKind.DEFAULT, theta=1e4)
    assert torch.equal(
        inverse_frequencies(plain, 16),
        inverse_frequencies(RopeSpec(kind=RopeKind.DEFAULT, theta=1e4, factor=8.0), 16),
    )


def test_tables_follow_the_positions_of_the_step():
    tables = RotaryTables(torch.float32, torch.device("cpu"))
    spec = RopeSpec(kind=RopeKind.DEFAULT, theta=1e4)
    cos, sin = tables.at(torch.tensor([5, 6]), spec, 4)
    angles = torch.tensor([[5.0, 0.05], [6.0, 0.06]])
    torch.testing.assert_close(cos, angles.cos())
    torch.testing.assert_close(sin, angles.sin())
    later, _ = tables.at(torch.tensor([7]), spec, 4)
    torch.testing.assert_close(later, torch.tensor([[7.0, 0.07]]).cos())


def test_tables_ask_for_the_frequencies_of_each_layer_kind_once_a_step():
    asked = []

    def frequencies(spec, head_dim):
        asked.append((spec.theta, head_dim))
        return inverse_frequencies(spec, head_dim) * 2

    tables = RotaryTables(torch.float32, torch.device("cpu"), frequencies)
    specs = [RopeSpec(kind=RopeKind.DEFAULT, theta=theta) for theta in (1e4, 1e6)]
    for _ in range(2):
        tables.begin_step()
        for spec in (*specs, *specs):
            cos, _ = tables.at(torch.tensor([3]), spec, 4)
    assert asked == [(1e4, 4), (1e6, 4)] * 2
    torch.testing.assert_close(cos, torch.tensor([[6.0, 0.006]]).cos())
