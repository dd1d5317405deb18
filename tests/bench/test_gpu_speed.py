"""The benchmarks of the GPU check: every one runs, in the interpreter on tiny tensors.

Only the arithmetic of ratios is looked at, with timers that answer what they are told to.
"""

import json
from dataclasses import replace

import pytest
import torch

from bench.gpu import prefill_speed, speed
from bench.gpu.__main__ import BIG_MODEL
from bench.gpu.models import LoadedModel
from bench.gpu.ratio import Bench, check_close
from bench.gpu.report import Clock
from bench.gpu.sizes import FULL, TINY
from bench.gpu.timer import WallTimer
from swarepro.checkpoint import open_checkpoint


def silent(text: str) -> None:
    pass


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(device=torch.device("cpu"), timer=WallTimer(), sizes=TINY)


def test_every_benchmark_runs(bench: Bench) -> None:
    model = LoadedModel("synthetic:gemma4-tiny", "cpu")
    rows = list(speed.run(bench, model, clock=Clock(3600), say=silent))
    assert [row.seen for row in rows if row.judged] == []  # an exception would be judged
    starts = ["store_kv", *["paged_decode"] * 2, *["paged_prefill"] * 3, "digest", "op-level"]
    assert [row.what.split(",")[0].split()[0] for row in rows] == starts
    assert [row.aim for row in rows] == [
        *("at least 0.70", "at least 0.70", "at least 0.70"),
        *("at least 0.60", "", "at least 1.00"),
        *("at least 0.80", "at most 1.10"),
    ]
    assert all(row.figures["ratio"] > 0 for row in rows)
    json.dumps([row.figures for row in rows], allow_nan=False)


def test_ratios_are_the_right_way_up(bench: Bench) -> None:
    """A timer that says 2 ms for what is timed first, 1 ms for the next."""
    answers = iter([2.0, 1.0] * 4)
    fake = replace(bench, timer=lambda work: next(answers))
    (store,) = speed.store_kv(fake)
    assert (store.figures["ratio"], store.verdict) == (0.5, "missed")
    (read,) = speed.digest(fake)
    assert (read.figures["ratio"], read.verdict) == (0.5, "missed")
    memory, full, sliding = 1.0, 2.0, 1.0
    answers = iter([memory, full, sliding])
    decode = list(speed.paged_decode(fake))
    of_memory = 2 * TINY.copy_bytes
    for row, geometry, ms in zip(decode, (TINY.full, TINY.sliding), (full, sliding), strict=True):
        read = 2 * TINY.decode_context * geometry.num_kv_heads * geometry.head_dim * 2
        assert row.figures["ratio"] == pytest.approx(read / ms / of_memory)


def test_the_fastest_backend_is_the_one_that_is_compared(bench: Bench) -> None:
    q = bench.normal(1, 4, 6, 16)
    dense = prefill_speed.Dense(q=q, k=q[:, :2], v=q[:, 2:], mask=None, scale=0.25)
    answers = iter([5.0, 1.5, 3.0, 4.0, 6.0, 7.0, 8.0, 9.0])
    fake = replace(bench, timer=lambda work: next(answers))
    name, milliseconds, out, seen = prefill_speed.best_sdpa(fake, dense)
    assert milliseconds == 1.5
    assert f"{milliseconds:.4f} ms" == seen[name]
    assert len(seen) == 8
    assert out.shape == (6, 4, 16)


def test_a_wrong_result_is_a_failure(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swarepro_kernels.store_kv", lambda *arguments: None)
    with pytest.raises(RuntimeError, match="do not hold the rows"):
        list(speed.store_kv(bench))
    monkeypatch.setattr("swarepro_kernels.paged_prefill", lambda q, *rest, **more: q * 9)
    with pytest.raises(RuntimeError, match="paged_prefill: off by"):
        list(prefill_speed.paged_prefill(bench))
    check_close("x", torch.zeros(2), torch.zeros(2))
    with pytest.raises(RuntimeError, match="off by nan"):
        check_close("x", torch.tensor([0.0, torch.nan]), torch.zeros(2))


def test_the_sizes_are_those_of_the_aims() -> None:
    assert (FULL.store_rows, FULL.sliding.num_kv_heads, FULL.sliding.head_dim) == (4096, 8, 256)
    assert (FULL.decode_context, FULL.prefill_rows) == (32768, 2048)
    assert (FULL.window, FULL.window_context, FULL.capture_chunk) == (1024, 16384, 64)
    layers = open_checkpoint(BIG_MODEL).config.layers
    assert len(layers) == 16
    kinds = {(layer.num_kv_heads, layer.head_dim) for layer in layers}
    assert kinds == {(g.num_kv_heads, g.head_dim) for g in (FULL.sliding, FULL.full)}
