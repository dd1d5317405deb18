"""Where a bundle first holds a value that is not finite."""

import numpy as np
import pytest

from swarepro import points
from swarepro.compare.finite import first_nonfinite
from tests.unit.bundle.factory import Run, item, stages


def bundle(tmp_path, *items):
    return Run(items=list(items), num_layers=2, stages=stages((0, 2))).open(tmp_path / "run")


def rows(value):
    array = np.ones((4, 3), dtype=np.float32)
    array[2, 1] = value
    return array


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_first_value_in_execution_order(value, tmp_path):
    found = first_nonfinite(
        bundle(
            tmp_path,
            item(points.EMBEDDING_OUTPUT, rows(3.4e38)),
            item(points.AFTER_LAYER, rows(value), layer=0),
            item(points.AFTER_LAYER, rows(np.nan), layer=1),
        )
    )
    assert found is not None
    assert found.name == "after_layer_0"


def test_none_where_all_values_are_finite(tmp_path):
    items = [
        item(points.EMBEDDING_OUTPUT, rows(0.0)),
        item(points.AFTER_LAYER, rows(-1.0), layer=0),
    ]
    assert first_nonfinite(bundle(tmp_path, *items)) is None


def test_state_is_not_looked_at(tmp_path):
    """What nobody wrote in a pool may be anything."""
    pool = np.full((4, 2, 2, 4), np.nan, dtype=np.float32)
    items = [
        item(points.KV_SLICE_PRE_WRITE, pool, layer=0),
        item(points.ATTN_RESIDUAL, rows(1.0), layer=0),
    ]
    assert first_nonfinite(bundle(tmp_path, *items)) is None
