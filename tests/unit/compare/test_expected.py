"""What a baseline shows, asked for boundary by boundary, as `align_steps` would match it."""

import pytest
from msgspec import structs

from swarepro.compare.align import align_steps
from swarepro.compare.expected import Expected, same_bytes
from swarepro.errors import IncomparableError
from tests.unit.bundle.factory import batch
from tests.unit.compare.batches import CHAIN, run

STEPS = (
    batch(0, (0, 0, 4)),
    batch(1, (0, 4, 5, "decode"), (1, 0, 3)),
    batch(2, (1, 3, 4, "decode"), (0, 5, 6, "decode")),
)
SWAPPED = (*STEPS[:1], batch(1, (1, 0, 3), (0, 4, 5, "decode")), *STEPS[2:])


def pairs(expected, target):
    """Ask for every record of ``target`` in order."""
    found = []
    for record in target.records:
        partner = expected.next(
            step=record.step,
            name=record.name,
            session=record.session,
            point=record.point,
            stage=record.stage,
        )
        if partner is not None:
            found.append((partner.index, record.index))
    return sorted(found)


@pytest.mark.parametrize("one", [((0, 2),), CHAIN])
@pytest.mark.parametrize("other", [((0, 2),), CHAIN])
@pytest.mark.parametrize("steps", [STEPS, SWAPPED])
def test_it_matches_what_a_comparison_by_step_matches(tmp_path, one, other, steps):
    baseline = run(STEPS, layers=one).open(tmp_path / "a")
    target = run(steps, layers=other).open(tmp_path / "b")
    wanted = align_steps(baseline, target).pairs
    expected = Expected(baseline, target.manifest)
    assert pairs(expected, target) == [(left.index, right.index) for left, right in wanted]
    assert len(wanted) > 40


def test_of_a_longer_baseline_the_rest_is_not_asked_for(tmp_path):
    baseline = run(STEPS).open(tmp_path / "a")
    target = run(STEPS[:2]).open(tmp_path / "b")
    expected = Expected(baseline, target.manifest)
    assert len(pairs(expected, target)) == len(target.records)
    assert expected.has(2, "logits", 1)
    assert not expected.has(0, "logits", 1)
    assert "logits" in expected.names


def test_bytes_are_the_same_in_the_same_dtype_and_shape(tmp_path):
    record = run(STEPS).open(tmp_path / "a").records[5]
    same = {"dtype": record.dtype, "shape": record.shape, "digest": record.digest}
    assert same_bytes(record, **same)
    for change in ({"dtype": "F16"}, {"shape": (1, *record.shape)}, {"digest": "0" * 32}):
        assert not same_bytes(record, **(same | change))


def test_a_step_that_differs_is_named(tmp_path):
    baseline = run(STEPS).open(tmp_path / "a")
    other = run((*STEPS[:2], batch(2, (0, 5, 6, "decode")))).open(tmp_path / "b")
    with pytest.raises(IncomparableError, match="other steps than this run, first at step 2"):
        Expected(baseline, other.manifest)


def test_an_empty_baseline_is_refused(tmp_path):
    empty = run(STEPS, without=()).open(tmp_path / "a")
    with pytest.raises(IncomparableError, match="nothing was captured"):
        Expected(
            type(empty)(path=empty.path, manifest=empty.manifest, records=(), _headers={}),
            empty.manifest,
        )


def test_other_prompts_are_told_apart(tmp_path):
    baseline = run(STEPS).open(tmp_path / "a")
    manifest = baseline.manifest
    first, *rest = manifest.prompts
    for prompts, said in (
        (((9, *first[1:]), *rest), "session 0 has other token ids"),
        ((first[:-1], *rest), "session 0 has 8 tokens against 7"),
        (manifest.prompts[:2], "of 3 sessions against 2"),
    ):
        with pytest.raises(IncomparableError, match=said):
            Expected(baseline, structs.replace(manifest, prompts=prompts))
