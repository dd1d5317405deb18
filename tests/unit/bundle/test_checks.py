"""Steps and actions that contradict themselves are refused; what a plan may say is not."""

import msgspec
import numpy as np
import pytest

from swarepro import points
from swarepro.bundle.read import open_bundle
from swarepro.bundle.schema import ActionEntry, SpanEntry
from swarepro.errors import BundleError
from tests.unit.bundle.factory import Run, batch, finish, item, keep, reuse

PROMPTS = ((1, 2), (3, 4), (5,))
MIXED = batch(0, (0, 0, 2), (1, 0, 1, "decode"))


def written(tmp_path, *steps, items=(), **more):
    run = Run(items=list(items), steps=steps, prompts=PROMPTS, **more)
    return run.write(tmp_path / "a")


def spans_of(step, *entries, **changes):
    return msgspec.structs.replace(step, spans=entries, **changes)


@pytest.mark.parametrize(
    ("step", "match"),
    [
        (batch(0, (0, 0, 2), (0, 2, 3)), "step 0: session 0 has two spans"),
        (batch(0, (3, 0, 2)), "step 0: the manifest has no session 3"),
        (
            spans_of(MIXED, SpanEntry(session=1, start=0, end=1)),
            "it is mixed, and the span of session 1 has no phase",
        ),
        (
            spans_of(MIXED, SpanEntry(session=1, start=0, end=1, phase="decode"), phase="prefill"),
            "it is a prefill, and the span of session 1 is a decode",
        ),
    ],
)
def test_spans_that_contradict_their_step(tmp_path, step, match):
    with pytest.raises(BundleError, match=match):
        open_bundle(written(tmp_path, step))


@pytest.mark.parametrize(
    ("action", "match"),
    [
        (finish(3), "finish: the manifest has no session 3"),
        (reuse(1, of=-1, rows=2), "reuse: the manifest has no session -1"),
        (ActionEntry(kind="keep", session=0, rows=2), "keep of session 0 takes over no rows"),
        (ActionEntry(kind="finish", session=0, of=1), "finish of session 0 takes over no rows"),
        (ActionEntry(kind="reuse", session=0, of=1), "names no session to take over, or no rows"),
        (ActionEntry(kind="reuse", session=0, rows=1), "names no session to take over, or no rows"),
        (reuse(1, of=1, rows=2), "session 1 cannot take over its own rows"),
        (reuse(1, of=0, rows=0), "reuse for session 1 takes over 0 rows, not 1 or more"),
    ],
)
def test_actions_that_contradict_themselves(tmp_path, action, match):
    before = batch(0, (0, 0, 2), actions=(action,))
    with pytest.raises(BundleError, match=rf"step 0: .*{match}"):
        open_bundle(written(tmp_path / "1", before))
    with pytest.raises(BundleError, match=rf"after the last step: .*{match}"):
        open_bundle(written(tmp_path / "2", MIXED, final_actions=(action,)))


def test_control_a_plan_with_all_of_it_is_read(tmp_path):
    later = batch(1, (2, 1, 2), actions=(keep(0), reuse(2, of=0, rows=1)))
    manifest = open_bundle(written(tmp_path, MIXED, later, final_actions=(finish(2),))).manifest
    assert manifest.steps == (MIXED, later)
    assert manifest.final_actions == (finish(2),)


@pytest.mark.parametrize("session", [0, 1, 2])
def test_a_record_belongs_to_a_span_of_its_step(tmp_path, session):
    ids = item(points.INPUT_IDS, np.arange(2), dtype="I64", session=session)
    path = written(tmp_path, MIXED, items=[ids])
    if session < 2:
        assert open_bundle(path).records[0].session == session
        return
    with pytest.raises(BundleError, match=r"'input_ids': session 2 has no span in step 0"):
        open_bundle(path)


def test_a_batch_has_several_records_of_one_name(tmp_path):
    arrays = [np.arange(2) + 10 * session for session in (1, 0)]
    items = [
        item(points.INPUT_IDS, array, dtype="I64", session=session, occurrence=occurrence)
        for occurrence, (session, array) in enumerate(zip((1, 0), arrays, strict=True))
    ]
    bundle = open_bundle(written(tmp_path, MIXED, items=items))
    assert [record.key for record in bundle.records] == ["input_ids", "input_ids#1"]
    for record, array in zip(bundle.records, arrays, strict=True):
        np.testing.assert_array_equal(bundle.tensor(record), array)
