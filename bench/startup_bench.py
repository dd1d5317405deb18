"""How soon `swarepro --help` answers, against importing torch alone."""

import statistics
import subprocess
import sys
import time

from bench.rows import Row

HELP = [
    "-c",
    "import sys; sys.argv = ['swarepro', '--help']; from swarepro.cli.app import main; main()",
]
TORCH = ["-c", "import torch"]
ROUNDS = 7


def _seconds(arguments: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def run() -> list[Row]:
    """Alternate the two, so that both meet the same machine, and compare medians."""
    _seconds(TORCH), _seconds(HELP)  # warm the file cache
    pairs = [(_seconds(HELP), _seconds(TORCH)) for _ in range(ROUNDS)]
    helps, torches = zip(*pairs, strict=True)
    ratio = statistics.median(helps) / statistics.median(torches)
    return [Row("`swarepro --help` / `import torch`", ratio, 1 / 3)]
