"""How fast and how lean comparing is: 200 bfloat16 tensors of 2048 x 1280, 1000 MiB a side.

    python bench/diff_bench.py [FOLDER]

Every figure is a ratio measured in one run on one machine; the limits are those of `make bench`.
"""

import mmap
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import xxhash

from swarepro import points
from swarepro.bundle.digest import digest_bytes
from swarepro.bundle.environment import read_environment
from swarepro.bundle.read import open_bundle
from swarepro.bundle.schema import (
    BackendEntry,
    CaptureEntry,
    SpanEntry,
    StageEntry,
    StepEntry,
    TensorRecord,
)
from swarepro.bundle.write import BundleWriter
from swarepro.compare.divergence import compare_bundles
from swarepro.compare.types import Divergence, Tolerance, Verdict
from swarepro.points import Level

NUM_TENSORS, FIRST_DIFFERING = 200, 77
SHAPE = (2048, 1280)
TENSOR_BYTES = 2 * SHAPE[0] * SHAPE[1]
SIDE_BYTES = NUM_TENSORS * TENSOR_BYTES
Result = tuple[str, float, float]


def write_side(directory: Path, *, differs_from: int, chunks: int = 1) -> Path:
    """Write one side in equal chunks; tensors from ``differs_from`` on carry 1 % noise."""
    rng = np.random.default_rng(0)
    base = rng.standard_normal(SHAPE, dtype=np.float32)
    noisy = base * (1 + 0.01 * rng.standard_normal(SHAPE, dtype=np.float32))
    bits = [(values.view(np.uint32) >> 16).astype(np.uint16) for values in (base, noisy)]
    with BundleWriter(directory) as writer:
        height = SHAPE[0] // chunks
        for step in range(chunks):
            for layer in range(NUM_TENSORS):
                whole = np.roll(bits[layer >= differs_from], layer, axis=0)
                array = whole[step * height : (step + 1) * height]
                writer.add(
                    _record(layer, digest_bytes(array.data), step=step, rows=height), array.data
                )
            writer.end_step()
        writer.finish(
            case={},
            model="bench",
            num_layers=NUM_TENSORS,
            steps=tuple(
                StepEntry(
                    index=step,
                    phase="prefill",
                    spans=(SpanEntry(session=0, start=step * height, end=(step + 1) * height),),
                    reset=False,
                )
                for step in range(chunks)
            ),
            stages=(
                StageEntry(
                    layer_start=0,
                    layer_end=NUM_TENSORS,
                    role="single",
                    bytes_read=0,
                    header_bytes=0,
                ),
            ),
            capture=CaptureEntry(
                level=Level.BOUNDARY, store="tensor", points=("*",), layers=(), steps=()
            ),
            backend=BackendEntry(
                device="cpu",
                dtype="bfloat16",
                triton="off",
                route="eager",
                schedule="program",
                num_threads=1,
                routes={},
            ),
            faults=(),
            environment=read_environment(),
            prompts=((0,),),
            tokens=((),),
            ownership=(),
        )
    return directory


def _record(layer: int, digest: str, *, step: int, rows: int) -> TensorRecord:
    point = points.AFTER_LAYER
    return TensorRecord(
        index=0,
        step=step,
        stage=0,
        name=point.concrete(layer),
        point=point.name,
        layer=layer,
        occurrence=0,
        kind=point.kind,
        dims=point.dims,
        dtype="BF16",
        shape=(rows, SHAPE[1]),
        digest=digest,
        session=0,
        row_start=step * rows,
        file=None,
    )


def best_of(times: int, work: Callable[[], object]) -> float:
    """Return the shortest wall time of ``work`` in seconds."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def compare(baseline: Path, target: Path) -> Divergence:
    """Open and compare."""
    return compare_bundles(open_bundle(baseline), open_bundle(target))


def hash_all(*sides: Path) -> None:
    """Hash the files of every side once, mapped, with XXH3-128."""
    for path in [path for side in sides for path in side.glob("tensors/*.safetensors")]:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        ):
            xxhash.xxh3_128_hexdigest(mapped)


def copy_seconds() -> float:
    """Return the time of copying one side's bytes in memory."""
    source = np.ones(SIDE_BYTES // 8)
    target = np.zeros_like(source)
    return best_of(5, lambda: np.copyto(target, source))


def join(baseline: Path, target: Path) -> Divergence:
    """Open and compare by position."""
    tolerance = Tolerance(atol=1e-6, rtol=1e-6)
    return compare_bundles(
        open_bundle(baseline), open_bundle(target), align="position", tolerance=tolerance
    )


_PEAK = """
import sys
from pathlib import Path
import diff_bench
compare = getattr(diff_bench, sys.argv[3])
def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024
compare(Path(sys.argv[1]), Path(sys.argv[1]))
Path("/proc/self/clear_refs").write_text("5")
before = status("VmRSS")
compare(Path(sys.argv[1]), Path(sys.argv[2]))
print(status("VmHWM") - before)
"""


def peak_bytes(baseline: Path, target: Path, *, how: str = "compare") -> int:
    """Return how far ``compare`` or ``join`` raises a fresh process's resident memory.

    Mappings are included.
    """
    done = subprocess.run(
        [sys.executable, "-c", _PEAK, str(baseline), str(target), how],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent,
        env={"PYTHONPATH": str(Path(__file__).parents[1])},
    )
    return int(done.stdout)


def run(folder: Path | None = None) -> list[Result]:
    """Measure; return (what, ratio, limit)."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        root = Path(name)
        baseline = write_side(root / "baseline", differs_from=NUM_TENSORS)
        same = write_side(root / "same", differs_from=NUM_TENSORS)
        target = write_side(root / "target", differs_from=FIRST_DIFFERING)
        copying = copy_seconds()
        equal = compare(baseline, same)
        if (equal.verdict, equal.tensors_opened) != (Verdict.IDENTICAL, 0):
            raise RuntimeError(f"two equal bundles: {equal.verdict}, {equal.tensors_opened} opened")
        found = compare(baseline, target)
        differing = NUM_TENSORS - FIRST_DIFFERING
        if found.first is None or found.first.layer != FIRST_DIFFERING:
            raise RuntimeError(f"first divergence at {found.first}")
        if len(found.boundaries) != differing:
            raise RuntimeError(f"{len(found.boundaries)} boundaries of {differing} diverge")
        chunked = write_side(root / "chunked", differs_from=NUM_TENSORS, chunks=4)
        joined = join(baseline, chunked)
        if (joined.verdict, joined.compared) != (Verdict.IDENTICAL, NUM_TENSORS):
            raise RuntimeError(f"joined by position: {joined.verdict} of {joined.compared}")
        hashing = best_of(3, lambda: hash_all(baseline, target))
        return [
            (
                "equal bundles, of copying one side",
                best_of(5, lambda: compare(baseline, same)) / copying,
                0.05,
            ),
            (
                f"{differing} of {NUM_TENSORS} differ, of hashing both sides",
                best_of(5, lambda: compare(baseline, target)) / hashing,
                2.0,
            ),
            (
                "peak memory while comparing, of two tensors",
                peak_bytes(baseline, target) / (2 * TENSOR_BYTES),
                1.0,
            ),
            (
                "other chunks joined by position, of hashing both sides",
                best_of(3, lambda: join(baseline, chunked))
                / best_of(3, lambda: hash_all(baseline, chunked)),
                3.0,
            ),
            (
                "peak memory while joining, of two tensors",
                peak_bytes(baseline, chunked, how="join") / (2 * TENSOR_BYTES),
                1.0,
            ),
        ]


def main() -> int:
    """Print the ratios; fail when one is over its limit."""
    results = run(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    for what, ratio, limit in results:
        sys.stdout.write(
            f"{what}: {ratio:.4f} (limit {limit}){'' if ratio <= limit else '  OVER'}\n"
        )
    return int(any(ratio > limit for _, ratio, limit in results))


if __name__ == "__main__":
    sys.exit(main())
