from pathlib import Path

import msgspec
import numpy as np
import pytest

from swarepro import api, points
from swarepro.bundle.read import Bundle, open_bundle
from swarepro.case import CaseSpec, PromptSpec, SessionSpec
from swarepro.compare.rereads import changed_rows, repeating
from swarepro.compare.types import Tolerance
from swarepro.errors import BundleError
from swarepro.options import RunOptions
from swarepro.shipped import find_case, load_case, shipped_cases
from tests.unit.bundle.factory import Run, batch, finish, item, keep, reuse

SHIFT = CaseSpec(
    name="shift",
    model="synthetic:gemma3-tiny",
    capacity=64,
    sessions=(SessionSpec(prompt=PromptSpec(random=30, seed=3), chunks=(20, 10), decode=2),),
)


def found(bundle: Bundle) -> list[tuple[int, int, str, tuple[int, ...]]]:
    return [
        (again.record.session, again.record.step, again.record.name, again.positions)
        for again in changed_rows(bundle)
    ]


@pytest.mark.parametrize("engine", ["paged", "dense"])
def test_a_healthy_run_reads_what_it_wrote(tmp_path: Path, engine: str) -> None:
    options = RunOptions(engine=engine)
    assert found(open_bundle(api.run_case(SHIFT, out=tmp_path, options=options).bundle)) == []


def test_reuse_eviction_and_reset_are_no_change(tmp_path: Path) -> None:
    names = [
        case.name
        for case in map(load_case, shipped_cases().values())
        if case.script and case.expect.healthy.error is None
    ]
    assert len(names) >= 3
    for name in names[:3]:
        assert found(open_bundle(api.run_case(find_case(name), out=tmp_path).bundle)) == []


def test_a_shift_that_rotates_stored_keys_is_seen(tmp_path: Path) -> None:
    options = RunOptions(faults=("shift-with-global-base",))
    bundle = open_bundle(api.run_case(SHIFT, out=tmp_path, options=options).bundle)
    first = found(bundle)[0]
    assert first[:3] == (0, 2, "L0_kv_slice_post_write")
    assert first[3] == tuple(range(20, 30))  # of the last chunk


def rows(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)[:, None, None, None] * np.ones((1, 2, 1, 2))


def slices(*steps: tuple[int, int, int, np.ndarray]) -> list:
    return [
        item(
            points.KV_SLICE_POST_WRITE, array, layer=0, step=step, session=session, row_start=start
        )
        for step, session, start, array in steps
    ]


def test_each_session_and_layer_is_told_once_with_its_rows(tmp_path: Path) -> None:
    items = slices(
        (0, 0, 0, rows(1, 2, 3)), (1, 0, 0, rows(1, 9, 3, 4)), (2, 0, 1, rows(9, 8, 4, 5))
    )
    steps = (batch(0, (0, 0, 3)), batch(1, (0, 3, 4)), batch(2, (0, 4, 5)))
    run = Run(items=items, steps=steps, prompts=((1,) * 5,))
    assert found(run.open(tmp_path / "r")) == [(0, 1, "L0_kv_slice_post_write", (1,))]


def test_a_session_that_begins_anew_writes_its_own_rows(tmp_path: Path) -> None:
    steps = (
        batch(0, (0, 0, 2)),
        batch(1, (0, 0, 2), reset=True),
        batch(2, (1, 0, 2), actions=(finish(0),)),
        batch(3, (0, 1, 3), actions=(keep(1), reuse(0, of=1, rows=1))),
    )
    items = slices(
        (0, 0, 0, rows(1, 2)),
        (1, 0, 0, rows(3, 4)),
        (2, 1, 0, rows(5, 6)),
        (3, 0, 0, rows(5, 7, 8)),
    )
    run = Run(items=items, steps=steps, prompts=((1, 2), (1, 2)), tokens=((), ()))
    assert found(run.open(tmp_path / "r")) == []


def test_rows_that_a_step_goes_back_to_are_its_own(tmp_path: Path) -> None:
    """A drafted token was rejected: its row is written anew. The row before it stays."""
    steps = (batch(0, (0, 0, 3)), batch(1, (0, 2, 4)), batch(2, (0, 3, 4)))
    items = slices(
        (0, 0, 0, rows(1, 2, 3)), (1, 0, 0, rows(1, 2, 7, 8)), (2, 0, 0, rows(1, 2, 7, 9))
    )
    run = Run(items=items, steps=steps, prompts=((1,) * 4,))
    assert found(run.open(tmp_path / "r")) == []
    changed = slices((2, 0, 0, rows(1, 2, 3, 9)))  # what the first step wrote, and none since
    run = Run(items=items[:2] + changed, steps=steps, prompts=((1,) * 4,))
    assert found(run.open(tmp_path / "b")) == [(0, 2, "L0_kv_slice_post_write", (2,))]


def test_a_window_is_mapped_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 16 bytes, two in a window; a whole tensor is never mapped."""
    steps = (batch(0, (0, 0, 5)), batch(1, (0, 5, 6)))
    items = slices((0, 0, 0, rows(1, 2, 3, 4, 5)), (1, 0, 0, rows(1, 2, 3, 4, 9, 6)))
    bundle = Run(items=items, steps=steps, prompts=((1,) * 6,)).open(tmp_path / "r")
    asked: list[int] = []
    mapped = Bundle.rows

    def watched(self, record, start, stop):
        asked.append(stop - start)
        return mapped(self, record, start, stop)

    def refused(self, record):
        raise AssertionError("a whole tensor was mapped")

    monkeypatch.setattr(Bundle, "rows", watched)
    monkeypatch.setattr(Bundle, "tensor", refused)
    monkeypatch.setattr("swarepro.compare.windows.WINDOW_BYTES", 32)
    assert found(bundle) == [(0, 1, "L0_kv_slice_post_write", (4,))]
    assert asked == [2, 2, 2, 2, 1, 1]


def test_a_damaged_slice_is_no_change_of_a_row(tmp_path: Path) -> None:
    steps = (batch(0, (0, 0, 2)), batch(1, (0, 2, 3)))
    items = slices((0, 0, 0, rows(1, 2)), (1, 0, 0, rows(1, 2, 3)))
    bundle = Run(items=items, steps=steps, prompts=((1,) * 3,)).open(tmp_path / "r")
    (file,) = {bundle.path / record.file for record in bundle.records if record.step == 1}
    data = bytearray(file.read_bytes())
    data[-48] ^= 1  # in the first of three rows
    file.write_bytes(data)
    with pytest.raises(BundleError, match="its record says"):
        found(bundle)


def test_what_one_step_alone_shows_is_not_read(tmp_path: Path) -> None:
    items = slices((0, 0, 0, rows(1, 2)), (0, 1, 0, rows(1, 2)))
    items[1] = (msgspec.structs.replace(items[1][0], occurrence=1), *items[1][1:])
    steps = (batch(0, (0, 0, 2), (1, 0, 2)),)
    run = Run(items=items, steps=steps, prompts=((1, 2), (1, 2)), tokens=((), ()))
    assert repeating(run.open(tmp_path / "r")) == []


def test_a_comparison_by_position_sees_the_shift(tmp_path: Path) -> None:
    """Whatever the tolerance; a healthy run of the same chunks agrees within it."""
    chunks = msgspec.structs.replace(SHIFT.sessions[0], chunks=(30,))
    whole = msgspec.structs.replace(SHIFT, sessions=(chunks,))
    baseline = api.run_case(whole, out=tmp_path, run_id="whole").bundle
    for run_id, faults in (("ok", ()), ("bad", ("shift-with-global-base",))):
        options = RunOptions(faults=faults)
        target = api.run_case(SHIFT, out=tmp_path, run_id=run_id, options=options).bundle
        diff = api.diff_runs(baseline, target, tolerance=Tolerance(atol=100.0))
        assert diff.align == "position"
        assert (diff.verdict == "DIVERGED") is (run_id == "bad")
        assert diff.rereads > 0
    assert diff.first is not None
    assert (diff.first.name, diff.first.reread_at) == ("L0_kv_slice_post_write", 2)
