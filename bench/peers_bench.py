"""Peers on the tensors of `diff_bench`: their time to find 123 of 200 differing, over ours.

Each peer runs as its users run it, from saved files or its own traces; a peer that is not
installed (``pip install 'swarepro[bench]'``) is named and left out. Ratios above 1: swarepro is
faster. Whole commands are compared with whole commands, calls with calls.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

from bench.diff_bench import FIRST_DIFFERING, NUM_TENSORS, best_of, compare, write_side
from bench.rows import Row

_LOAD_EQUAL = """
import sys, time, torch
start = time.perf_counter()
a, b = torch.load(sys.argv[1], mmap=True), torch.load(sys.argv[2], mmap=True)
found = [name for name in a if not torch.equal(a[name], b[name])]
print(time.perf_counter() - start, len(found))
"""

_SAVE_PT = """
import sys, torch
from safetensors.torch import load_file
torch.save(load_file(sys.argv[1]), sys.argv[2])
"""

_SAVE_MSPROBE = """
import sys
from safetensors.torch import load_file
from msprobe.pytorch import PrecisionDebugger
debugger = PrecisionDebugger(config_path=sys.argv[2])
for name, tensor in load_file(sys.argv[1]).items():
    debugger.save(tensor, name)
debugger.step()
"""

_TORCHLENS = """
import sys, time, torch, torchlens
from torchlens.debug import first_divergence
from safetensors.torch import load_file
class Chain(torch.nn.Module):
    def __init__(self, path):
        super().__init__()
        self.tensors = load_file(path)
    def forward(self, x):
        return torch.stack([(x * self.tensors[name])[0, 0] for name in NAMES])
NAMES = [f"after_layer_{layer}" for layer in range(int(sys.argv[3]))]
one = torch.ones((), dtype=torch.bfloat16)
a, b = (torchlens.trace(Chain(path), one) for path in sys.argv[1:3])
start = time.perf_counter()
found = first_divergence(a, b, rtol=0, atol=0)
print(time.perf_counter() - start, found["op"])
"""


def _python(code: str, *arguments: object) -> str:
    """Run ``code`` in a process of its own and return the last line that it prints."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _tensors(side: Path) -> Path:
    return side / "tensors/step-0000.safetensors"


def _load_equal(root: Path, baseline: Path, target: Path, ours: float) -> Row:
    files = []
    for side in (baseline, target):
        files.append(root / f"{side.name}.pt")
        _python(_SAVE_PT, _tensors(side), files[-1])
    seconds, found = _python(_LOAD_EQUAL, *files).split()
    if int(found) != NUM_TENSORS - FIRST_DIFFERING:
        raise RuntimeError(f"torch.equal found {found}")
    for file in files:
        file.unlink()
    return Row("torch.load + torch.equal / swarepro, calls", float(seconds) / ours, None)


def _msprobe(root: Path, baseline: Path, target: Path) -> Row:
    dumps = []
    for side in (baseline, target):
        config = root / f"{side.name}-msprobe.json"
        folder = root / f"{side.name}-msprobe"
        settings = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "md5"}
        config.write_text(
            json.dumps(
                {
                    "task": "statistics",
                    "dump_path": str(folder),
                    "rank": [],
                    "step": [],
                    "level": "debug",
                    "statistics": settings,
                }
            )
        )
        _python(_SAVE_MSPROBE, _tensors(side), config)
        dumps.append(next(folder.rglob("debug.json")))
    command = [str(Path(sys.executable).with_name("msprobe")), "compare"]
    command += ["-tp", str(dumps[1]), "-gp", str(dumps[0]), "-o", str(root / "msprobe-out")]
    theirs = _seconds(lambda: subprocess.run(command, check=True, capture_output=True))
    diff = [sys.executable, "-m", "swarepro", "diff-boundaries", str(baseline), str(target)]
    ours = _seconds(lambda: subprocess.run(diff, check=False, capture_output=True))
    return Row("msprobe compare, md5 / swarepro diff-boundaries, commands", theirs / ours, None)


def _torchlens(baseline: Path, target: Path, ours: float) -> Row:
    arguments = (_tensors(baseline), _tensors(target), NUM_TENSORS)
    seconds, _ = _python(_TORCHLENS, *arguments).split()
    return Row("TorchLens first_divergence / swarepro, calls", float(seconds) / ours, None)


def _rows(root: Path) -> Iterator[Row]:
    baseline = write_side(root / "baseline", differs_from=NUM_TENSORS)
    target = write_side(root / "target", differs_from=FIRST_DIFFERING)
    ours = best_of(3, lambda: compare(baseline, target))
    yield _load_equal(root, baseline, target, ours)
    if find_spec("msprobe"):
        yield _msprobe(root, baseline, target)
    if find_spec("torchlens"):
        yield _torchlens(baseline, target, ours)


def run() -> list[Row]:
    """Return a row per peer that is installed; say on stderr which are not."""
    missing = [name for name in ("msprobe", "torchlens") if find_spec(name) is None]
    if missing:
        sys.stderr.write(
            f"not installed, left out: {', '.join(missing)} (pip install 'swarepro[bench]')\n"
        )
    with tempfile.TemporaryDirectory() as scratch:
        return list(_rows(Path(scratch)))
