"""Benchmarks as ratios of two things timed in the same run: shown with their aims, not judged.

Every benchmark checks first that it times the right thing; a wrong result is a failure.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import torch

import swarepro_kernels as kernels
from bench.gpu.models import DIGESTS, LoadedModel
from bench.gpu.prefill_speed import paged_prefill
from bench.gpu.ratio import DTYPE, Bench, check_close, gb_per_s, ratio_row
from bench.gpu.report import Clock, Row, guarded
from bench.gpu.sizes import Sizes
from swarepro.case import CaseSpec, PromptSpec, SessionSpec
from swarepro.options import CaptureOptions
from swarepro.points import Level
from swarepro.runs.once import run_in_memory
from swarepro.runs.prepare import Prepared
from swarepro_kernels import reference


def store_kv(bench: Bench) -> Iterator[Row]:
    """Rows to slots in random order, against a copy of as many bytes."""
    sizes, geometry = bench.sizes, bench.sizes.sliding
    rows = sizes.store_rows
    kv = bench.normal(2, rows, geometry.num_kv_heads, geometry.head_dim)
    k, v = kv[0], kv[1]
    k_cache, v_cache = bench.pool(2 * rows, geometry)
    slots = bench.permutation(2 * rows)[:rows].contiguous()

    def work() -> None:
        kernels.store_kv(k, v, k_cache, v_cache, slots)

    work()
    if not (torch.equal(k_cache[slots], k) and torch.equal(v_cache[slots], v)):
        raise RuntimeError("store_kv: the slots do not hold the rows")
    target = torch.empty_like(kv)
    ours, copy = bench.timer(work), bench.timer(lambda: target.copy_(kv))
    moved = 2 * kv.nbytes
    yield ratio_row(
        f"store_kv, {rows} rows, bandwidth / that of a device copy",
        copy / ours,
        f"{gb_per_s(moved, ours):.0f} of {gb_per_s(moved, copy):.0f} GB/s",
        at_least=0.7,
        figures={"ms": ours, "copy_ms": copy, "bytes_moved": moved},
    )


def paged_decode(bench: Bench) -> Iterator[Row]:
    """One query over the whole context, against what a large copy gets from the memory."""
    context, memory = bench.sizes.decode_context, memory_bandwidth(bench)
    for geometry in (bench.sizes.full, bench.sizes.sliding):
        q = bench.normal(1, geometry.num_heads, geometry.head_dim)
        k_cache, v_cache = bench.pool(context + 1, geometry)
        slots = bench.permutation(context) + 1
        work = partial(
            kernels.paged_decode, q, k_cache, v_cache, slots, scale=geometry.head_dim**-0.5
        )
        twin = reference.paged_decode(q, k_cache, v_cache, slots, scale=geometry.head_dim**-0.5)
        check_close("paged_decode", work(), twin)
        ours = bench.timer(work)
        read = 2 * context * geometry.num_kv_heads * geometry.head_dim * DTYPE.itemsize
        found = gb_per_s(read, ours)
        yield ratio_row(
            f"paged_decode, {context} keys, {geometry.name}, bandwidth / the memory's",
            found / memory,
            f"{found:.0f} of {memory:.0f} GB/s",
            at_least=0.7,
            figures={"ms": ours, "bytes_read": read, "memory_gb_s": memory},
        )


def memory_bandwidth(bench: Bench) -> float:
    """Return GB/s, read and written, of a large copy on the device."""
    source = torch.ones(bench.sizes.copy_bytes, dtype=torch.uint8, device=bench.device)
    target = torch.empty_like(source)
    return gb_per_s(2 * source.nbytes, bench.timer(lambda: target.copy_(source)))


def digest(bench: Bench) -> Iterator[Row]:
    """The digest of a large tensor, against a sum over it."""
    x = bench.normal(bench.sizes.digest_bytes // DTYPE.itemsize)
    values = x.view(torch.float32)
    out = torch.empty(2, dtype=torch.int64, device=bench.device)
    kernels.digest(x, out=out)
    first = out.tolist()
    ours = bench.timer(lambda: kernels.digest(x, out=out))
    if out.tolist() != first:
        raise RuntimeError(f"digest: {out.tolist()} after {first} of the same tensor")
    read = bench.timer(lambda: values.sum())
    yield ratio_row(
        f"digest, {x.nbytes >> 20} MiB, bandwidth / that of a read",
        read / ours,
        f"{gb_per_s(x.nbytes, ours):.0f} of {gb_per_s(x.nbytes, read):.0f} GB/s",
        at_least=0.8,
        figures={"ms": ours, "read_ms": read, "bytes_read": x.nbytes},
    )


def capture(sizes: Sizes, loaded: LoadedModel) -> Iterator[Row]:
    """Steps with every boundary digested, against the same steps with the last one alone."""
    case = CaseSpec(
        name="capture",
        model=loaded.model,
        capacity=sizes.capture_rows,
        sessions=(
            SessionSpec(
                prompt=PromptSpec(random=sizes.capture_rows, seed=1), chunk=sizes.capture_chunk
            ),
        ),
    )
    on = loaded.prepare(case, capture=DIGESTS)
    off = loaded.prepare(case, capture=CaptureOptions(level=Level.OFF, store="digest"))
    step_seconds(on), step_seconds(off)
    pairs = [
        pair
        for _ in range(sizes.capture_rounds)
        for pair in zip(step_seconds(on), step_seconds(off), strict=True)
    ]
    ratio = statistics.median(with_it / without for with_it, without in pairs)
    with_it, without = (1e3 * statistics.median(side) for side in zip(*pairs, strict=True))
    yield ratio_row(
        f"op-level digests / capture off, a step of {sizes.capture_chunk} rows, {loaded.model}",
        ratio,
        f"{with_it:.1f} ms for {without:.1f} ms",
        at_most=1.10,
        figures={"on_ms": with_it, "off_ms": without, "pairs": len(pairs)},
    )


def step_seconds(prepared: Prepared) -> list[float]:
    """Run once; return what each step but the first took.

    A step ends when its digests are on the host, so that the device has finished it.
    """
    ends: list[float] = []
    run_in_memory(
        prepared, schedule=prepared.schedule, on_step=lambda step: ends.append(time.perf_counter())
    )
    return [end - start for start, end in pairwise(ends)]


def run(
    bench: Bench, loaded: LoadedModel, *, clock: Clock, say: Callable[[str], None]
) -> Iterator[Row]:
    """Run every benchmark; yield their rows, or what one raised.

    Args:
        bench: device, timer and sizes.
        loaded: the model whose steps are captured.
        clock: when it is over, the rest is skipped.
        say: told what happens.
    """
    for name, work in (
        ("store_kv", partial(store_kv, bench)),
        ("paged_decode", partial(paged_decode, bench)),
        ("paged_prefill", partial(paged_prefill, bench)),
        ("digest", partial(digest, bench)),
        ("capture", partial(capture, bench.sizes, loaded)),
    ):
        yield from guarded("speed", name, work, clock=clock, judged=False, say=say)
