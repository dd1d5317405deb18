from dataclasses import replace

import pytest

from swarepro.compare.types import OneSided
from swarepro.points import PointKind
from swarepro.report.order import bound_of
from tests.unit.report.made import STORE, VALUE, boundary, divergence


def test_nothing_one_sided_is_exact() -> None:
    both = divergence()
    assert bound_of(both, STORE) == bound_of(both, VALUE) == "exact"


def test_an_inexact_first_weakens_all() -> None:
    weak = divergence(exact=False)
    assert bound_of(weak, STORE) == bound_of(weak, VALUE) == "here-or-before"


@pytest.mark.parametrize(
    ("step", "name", "bound"),
    [
        (0, "L3_o_proj", "here-or-before"),  # an earlier step
        (1, "embedding_output", "here-or-before"),  # before the layers
        (1, "L0_q_normed", "here-or-before"),  # the same layer, an earlier point
        (1, "L0_q_normed#1", "here-or-before"),
        (1, "boundary_send_hidden", "here-or-before"),  # of an earlier stage, perhaps
        (1, "unknown_point", "here-or-before"),
        (1, "L0_o_proj", "exact"),  # after it
        (1, "L10_q_normed", "exact"),  # a later layer, though "10" sorts before "2"
        (1, "logits", "exact"),
        (2, "L0_q_normed", "exact"),
        (1, "L0_kv_slice_pre_write", "exact"),  # another kind
        (0, "swa_slots", "exact"),
    ],
)
def test_a_value_that_one_side_lacks(step: int, name: str, bound: str) -> None:
    for side in ("only_baseline", "only_target"):
        found = replace(divergence(), **{side: (OneSided(step=step, name=name),)})
        assert bound_of(found, VALUE) == bound


def test_the_first_boundary_is_judged_by_the_comparison_alone() -> None:
    found = divergence(only_target=(OneSided(step=0, name="L0_kv_slice_pre_write"),))
    assert bound_of(found, STORE) == "exact"


def test_alignment_by_position_counts_every_point_of_the_kind() -> None:
    later = OneSided(step=9, name="logits")
    found = divergence(align="position", only_baseline=(later,))
    assert bound_of(found, VALUE) == "here-or-before"
    state = boundary("L1_kv_slice_post_write", kind=PointKind.STATE)
    assert bound_of(found, state) == "exact"
