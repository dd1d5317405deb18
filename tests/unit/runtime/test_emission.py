"""Real runs emit every declared point, in the declared order, in the shapes that were foreseen."""

import pytest

from swarepro import api, points
from swarepro.bundle.read import open_bundle
from swarepro.bundle.schema import TENSORS
from swarepro.case import CaseSpec, PromptSpec, SessionSpec
from swarepro.checkpoint import open_checkpoint
from swarepro.options import CaptureOptions, RunOptions, no_progress
from swarepro.points import Level
from swarepro.runs.prepare import plan_case, prepare
from swarepro.runtime.shapes import expected_tensors


def tiny(**changes) -> CaseSpec:
    fields = {
        "name": "tiny",
        "model": "synthetic:gemma4-tiny",
        "stages": "0:4,4:8,8:12",
        "capacity": 64,
        "sessions": (
            SessionSpec(prompt=PromptSpec(random=40, seed=3), chunks=(35, 5), decode=2),
            SessionSpec(prompt=PromptSpec(random=7, seed=4), chunk=64),
        ),
    }
    return CaseSpec(**(fields | changes))


@pytest.mark.parametrize("stages", [None, "0:4,4:8,8:12", "0:5,5:6,6:12"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_emitted_is_what_was_foreseen(tmp_path, stages, dtype):
    case = tiny(stages=stages, dtype=dtype)
    bundle = open_bundle(api.run_case(case, out=tmp_path).bundle)
    checkpoint = open_checkpoint(case.model)
    foreseen = [
        (x.step, x.stage, x.point.concrete(x.layer), x.shape)
        for x in expected_tensors(
            plan_case(case, checkpoint),
            checkpoint.config,
            itemsize=2 if dtype == "bf16" else 4,
        )
    ]
    emitted = [(r.step, r.stage, r.name, r.shape) for r in bundle.records]
    assert emitted == foreseen


def test_no_declared_point_is_dead(tmp_path):
    bundle = open_bundle(api.run_case(tiny(), out=tmp_path).bundle)
    assert {record.point for record in bundle.records} == {point.name for point in points.ALL}


@pytest.mark.parametrize("level", list(Level))
@pytest.mark.parametrize("store", ["digest", "tensor"])
def test_the_estimate_is_what_is_stored(tmp_path, level, store):
    options = RunOptions(capture=CaptureOptions(level=level, store=store))
    result = api.run_case(tiny(), out=tmp_path, options=options)
    bundle = open_bundle(result.bundle)
    stored = sum(
        bundle.tensor(record).nbytes for record in bundle.records if record.file is not None
    )
    prepared = prepare(tiny(), options, progress=no_progress)
    on_disk = sum(path.stat().st_size for path in result.bundle.rglob("*") if path.is_file())
    lines = (result.bundle / "records.jsonl").stat().st_size
    assert prepared.estimated_bytes >= stored + lines
    assert prepared.estimated_bytes <= 2 * on_disk + 4096
    assert (result.bundle / TENSORS).exists() == (store == "tensor" and level is not Level.OFF)


def test_a_stage_without_sliding_layers_has_no_swa_slots(tmp_path):
    bundle = open_bundle(api.run_case(tiny(stages="0:5,5:6,6:12"), out=tmp_path).bundle)
    by_stage = {stage: {r.name for r in bundle.records if r.stage == stage} for stage in range(3)}
    assert "swa_slots" in by_stage[0]
    assert "swa_slots" not in by_stage[1]
    assert [entry.stage for entry in bundle.manifest.ownership] == [0, 2]


def test_rows_carry_their_positions(tmp_path):
    bundle = open_bundle(api.run_case(tiny(stages=None), out=tmp_path).bundle)
    found = {(r.step, r.name): r for r in bundle.records}
    assert found[1, "L0_o_proj"].row_start == 35
    # 5 rows from position 35, window 32: the first query sees from 35 - 31 = 4 on.
    assert found[1, "L0_kv_slice_post_write"].row_start == 4
    assert found[1, "L0_kv_slice_post_write"].shape[0] == 36
    assert found[1, "L5_kv_slice_post_write"].row_start == 0
    assert found[1, "logits"].row_start == 39
    assert found[4, "L0_o_proj"].row_start == 0  # the second session begins again
    assert found[4, "L0_o_proj"].session == 1
