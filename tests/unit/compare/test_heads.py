"""Heads in a fused projection are named where another boundary says how wide one is."""

import numpy as np
import pytest

from swarepro import points
from swarepro.compare import compare_bundles
from swarepro.compare.heads import head_dims
from tests.unit.bundle.factory import Run, item


def runs(tmp_path, *, attended=(4, 4, 4), changed=(2, 5)):
    rng = np.random.default_rng(0)
    qkv = rng.normal(size=(4, 32)).astype(np.float32)
    other = qkv.copy()
    for head in changed:
        other[1, head * 4 + 3] += 1
    for name, array in (("a", qkv), ("b", other)):
        items = [item(points.QKV_PROJECTED, array, layer=1)]
        if attended is not None:
            items.append(item(points.ATTENTION_OUTPUT, np.ones(attended), layer=1))
        yield Run(items=items).open(tmp_path / name)


def test_heads_of_a_fused_projection_are_named(tmp_path):
    found = compare_bundles(*runs(tmp_path)).first.numbers
    assert (found.heads, found.num_heads) == ((2, 5), 8)


@pytest.mark.parametrize("attended", [None, (4, 4, 5), (4, 4, 0)], ids=["none", "5", "0"])
def test_without_a_width_that_fits_no_head_is_named(attended, tmp_path):
    found = compare_bundles(*runs(tmp_path, attended=attended)).first.numbers
    assert (found.heads, found.num_heads) == ((), 0)


def test_boundaries_that_disagree_about_the_width_say_nothing(tmp_path):
    baseline, target = runs(tmp_path)
    records = baseline.records
    wide = [record for record in records if record.dims[-1] == "D"]
    assert head_dims(records, target.records) == {1: 4}
    other = item(points.K_NORMED, np.ones((4, 2, 8)), layer=1)[0]
    assert head_dims(wide, [other]) == {}
