"""Real runs emit every declared point, in the declared order, in the shapes that were foreseen."""

import numpy as np
import pytest

from swarepro import api, points
from swarepro.build import Execution, Setting
from swarepro.bundle.captured import lacking
from swarepro.bundle.read import open_bundle
from swarepro.bundle.schema import TENSORS, CaptureEntry
from swarepro.capture import HostDigester, MemorySink
from swarepro.case import CaseSpec, PromptSpec, SessionSpec
from swarepro.checkpoint import open_checkpoint
from swarepro.options import CaptureOptions, RunOptions, no_progress
from swarepro.points import Level
from swarepro.runs.prepare import plan_case, prepare
from swarepro.runtime.shapes import expected_tensors
from tests.unit.runtime.scripted import batch, decode, prefill


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


MIXED = {
    "capacity": 96,
    "sessions": tuple(
        SessionSpec(prompt=PromptSpec(random=rows, seed=rows)) for rows in (40, 7, 20)
    ),
    "script": (
        batch(prefill(1, 5), prefill(0, 35)),
        batch(prefill(0, 5), prefill(1, 2), prefill(2, 9)),
        batch(decode(1), prefill(2, 11), decode(0)),
        batch(decode(0), decode(2), decode(1)),
    ),
}


@pytest.mark.parametrize("work", [{}, MIXED], ids=["one-by-one", "mixed"])
@pytest.mark.parametrize("stages", [None, "0:4,4:8,8:12", "0:5,5:6,6:12"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_emitted_is_what_was_foreseen(tmp_path, stages, dtype, work):
    case = tiny(stages=stages, dtype=dtype, **work)
    bundle = open_bundle(api.run_case(case, out=tmp_path).bundle)
    checkpoint = open_checkpoint(case.model)
    foreseen = [
        (x.step, x.stage, x.session, x.point.concrete(x.layer), x.shape)
        for x in expected_tensors(
            plan_case(case, checkpoint),
            checkpoint.config,
            itemsize=2 if dtype == "bf16" else 4,
        )
    ]
    emitted = [(r.step, r.stage, r.session, r.name, r.shape) for r in bundle.records]
    assert emitted == foreseen


def test_a_model_without_q_and_k_norms_has_no_such_points(tmp_path):
    """Gemma 2: rotary goes on from the projection, and a divergence there is still a source."""
    case = tiny(model="synthetic:gemma2-tiny")
    bundle = open_bundle(api.run_case(case, out=tmp_path).bundle)
    checkpoint = open_checkpoint(case.model)
    foreseen = expected_tensors(plan_case(case, checkpoint), checkpoint.config, itemsize=2)
    assert [(r.step, r.stage, r.session, r.name, r.shape) for r in bundle.records] == [
        (x.step, x.stage, x.session, x.point.concrete(x.layer), x.shape) for x in foreseen
    ]
    emitted = {record.point for record in bundle.records}
    optional = {point.name for point in points.ALL if point.optional}
    assert emitted == {point.name for point in points.ALL} - optional
    assert (
        lacking(bundle.manifest, bundle.records)
        == optional
        == {"L{layer}_q_normed", "L{layer}_k_normed"}
    )


class Calls:
    """A digester that notes in which order tensors are tapped, by their number of rows."""

    algorithm = "xxh3_128"

    def __init__(self):
        self.rows = []
        self._inner = HostDigester()

    def submit(self, tensor):
        self.rows.append(tensor.shape[0])
        self._inner.submit(tensor)

    def collect(self):
        return self._inner.collect()


def test_a_batch_is_computed_in_another_order_than_it_is_recorded():
    """The control: eager computes a span's projections before it turns to the next span."""
    case = tiny(**MIXED)
    plan = plan_case(case, open_checkpoint(case.model))
    calls, sink = Calls(), MemorySink([])
    points = ("L0_qkv_projected", "L0_q_normed")
    capture = CaptureEntry(level=Level.OP, store="digest", points=points, layers=(), steps=())
    prepared = prepare(case, RunOptions(), progress=no_progress)
    setting = Setting(capture=capture, faults=(), schedule="program", route="eager")
    execution = Execution(plan, prepared.model, setting, sink=sink)
    execution._recorder._digester = calls
    execution.run()
    assert calls.rows[:4] == [5, 5, 35, 35]
    assert [r.shape[0] for r in sink.records[:4]] == [5, 35, 5, 35]


@pytest.mark.parametrize("work", [{}, MIXED], ids=["one-by-one", "mixed"])
def test_no_declared_point_is_dead(tmp_path, work):
    bundle = open_bundle(api.run_case(tiny(**work), out=tmp_path).bundle)
    assert {record.point for record in bundle.records} == {point.name for point in points.ALL}


@pytest.mark.parametrize("work", [{}, MIXED], ids=["one-by-one", "mixed"])
@pytest.mark.parametrize("level", list(Level))
@pytest.mark.parametrize("store", ["digest", "tensor"])
def test_the_estimate_is_what_is_stored(tmp_path, level, store, work):
    options = RunOptions(capture=CaptureOptions(level=level, store=store))
    result = api.run_case(tiny(**work), out=tmp_path, options=options)
    bundle = open_bundle(result.bundle)
    stored = sum(
        bundle.tensor(record).nbytes for record in bundle.records if record.file is not None
    )
    prepared = prepare(tiny(**work), options, progress=no_progress)
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
    assert [(entry.stage, entry.group) for entry in bundle.manifest.ownership] == [
        (0, "full"),
        (0, "sliding"),
        (1, "full"),
        (2, "full"),
        (2, "sliding"),
    ]


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


def values(bundle, step, name):
    """A float32 tensor of ``bundle`` at ``step``."""
    record = next(r for r in bundle.records if (r.step, r.name) == (step, name))
    return bundle.tensor(record), record


@pytest.mark.parametrize("layer", [0, 5])
def test_kv_slices_hold_the_rows_that_were_stored(tmp_path, layer):
    """K is what rotary gave, V what its norm gave; before the write, what the last step left."""
    bundle = open_bundle(api.run_case(tiny(dtype="fp32"), out=tmp_path).bundle)
    heads = open_checkpoint("synthetic:gemma4-tiny").config.num_heads
    left = {}
    for step, end in ((0, 35), (1, 40), (2, 41), (3, 42)):
        before, pre = values(bundle, step, f"L{layer}_kv_slice_pre_write")
        after, post = values(bundle, step, f"L{layer}_kv_slice_post_write")
        rotary, record = values(bundle, step, f"L{layer}_rotary_applied")
        v_normed, _ = values(bundle, step, f"L{layer}_v_normed")
        start, first = record.row_start, post.row_start
        assert (pre.row_start, pre.shape) == (first, post.shape)
        assert first + post.shape[0] == end
        assert np.array_equal(after[start - first :, 0], rotary[:, heads:])
        assert np.array_equal(after[start - first :, 1], v_normed)
        for position in range(first, start):
            assert np.array_equal(before[position - first], left[position])
            assert np.array_equal(after[position - first], left[position])
        assert not before[start - first :].any()  # slots that nobody wrote since the reset
        left |= {first + row: after[row] for row in range(post.shape[0])}
