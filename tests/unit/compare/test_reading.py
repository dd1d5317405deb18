"""Rows that are compared are hashed on the way: whole tensors once, others by themselves."""

import numpy as np
import pytest

from swarepro import points
from swarepro.bundle.read import Bundle
from swarepro.compare.divergence import compare_bundles
from swarepro.compare.reading import Reading
from swarepro.compare.types import Tolerance, Verdict
from swarepro.errors import BundleError
from tests.unit.bundle.factory import Run, item, spans

WHOLE, CHUNKED = ((0, 9),), ((0, 4), (4, 9))
HIDDEN = np.random.default_rng(1).normal(size=(9, 6)).astype(np.float32)
POOL = np.random.default_rng(2).normal(size=(9, 2, 1, 4)).astype(np.float32)


def run(chunks):
    """A KV slice shows all rows so far, and is compared where they were written."""
    items = []
    for step, (start, end) in enumerate(chunks):
        items += [
            item(points.EMBEDDING_OUTPUT, HIDDEN[start:end], step=step, row_start=start),
            item(points.KV_SLICE_POST_WRITE, POOL[:end], step=step, layer=0, row_start=0),
        ]
    return Run(items=items, steps=spans(*chunks), prompts=(tuple(range(9)),))


def damage(bundle, row, *, step):
    """Flip a bit of stored ``row`` in the file of a step."""
    file = sorted(bundle.path.glob("tensors/*.safetensors"))[step]
    data = bytearray(file.read_bytes())
    at = data.find(row.tobytes())
    assert at >= 0
    data[at] ^= 1
    file.write_bytes(data)


def compare(one, other):
    return compare_bundles(one, other, align="position", tolerance=Tolerance(atol=1.0))


@pytest.fixture
def pair(tmp_path):
    return run(WHOLE).open(tmp_path / "whole"), run(CHUNKED).open(tmp_path / "chunked")


def test_control_nothing_is_damaged(pair):
    assert compare(*pair).verdict is Verdict.IDENTICAL


def test_a_tensor_that_is_read_whole(pair):
    damage(pair[1], HIDDEN[6], step=1)
    with pytest.raises(BundleError, match=r"embedding_output.* has digest"):
        compare(*pair)


def test_a_tensor_whose_damaged_row_is_not_compared(pair):
    """Row 1 counts at its first write; the second chunk shows it again, damaged."""
    damage(pair[1], POOL[1], step=1)
    with pytest.raises(BundleError, match=r"L0_kv_slice_post_write.* has digest"):
        compare(*pair)


def test_the_same_damage_on_both_sides(pair):
    for step, bundle in enumerate(pair):
        damage(bundle, HIDDEN[6], step=step)
    with pytest.raises(BundleError, match=r"embedding_output.* has digest"):
        compare(*pair)


@pytest.mark.parametrize(
    ("pieces", "again"),
    [
        ([(0, 4), (4, 9)], False),
        ([(0, 9)], False),
        ([(0, 4)], True),  # not whole
        ([(4, 9), (0, 4)], True),  # not in order
        ([(0, 4), (5, 9)], True),  # a gap
    ],
)
def test_what_was_read_whole_and_in_order_is_not_read_again(pair, monkeypatch, pieces, again):
    checked = []
    monkeypatch.setattr(Bundle, "check", lambda self, record: checked.append(record.name))
    bundle = pair[0]
    (record,) = (r for r in bundle.records if r.name == "embedding_output")
    reading = Reading(bundle)
    for start, stop in pieces:
        reading.see(record, HIDDEN[start:stop], row=start)
    assert reading.check() == 1
    assert checked == ["embedding_output"] * again


def test_every_tensor_is_counted_once(pair):
    bundle = pair[1]
    reading = Reading(bundle)
    for record in (r for r in bundle.records if r.name == "embedding_output"):
        rows = bundle.tensor(record)
        for row in range(len(rows)):
            reading.see(record, rows[row : row + 1], row=row)
    assert reading.check() == 2
