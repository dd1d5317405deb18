"""The kernel tests on CUDA: pytest in processes of its own, its summaries added up."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.gpu.report import Row

ROOT = Path(__file__).resolve().parents[2]
OUTCOMES = ("passed", "failed", "errors", "skipped", "xfailed", "xpassed")
_SUMMARY = re.compile(r"^=*\s*((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s", re.MULTILINE)
_NAMED = re.compile(r"^((?:FAILED|ERROR) .*)$", re.MULTILINE)


def num_workers() -> int:
    """Return how many processes share the tests: compiling takes a core, a context memory."""
    return min(8, os.cpu_count() or 1)


def parse_summary(output: str) -> Counter[str]:
    """Return the counts by outcome of pytest's last line; empty where there is no such line."""
    found = _SUMMARY.findall(output)
    counts: Counter[str] = Counter()
    for item in found[-1].split(", ") if found else ():
        number, _, outcome = item.partition(" ")
        counts["errors" if outcome == "error" else outcome] += int(number)
    return counts


def judge(
    outputs: Sequence[str], codes: Sequence[int | None], *, limit: float, seconds: float
) -> Row:
    """Turn what the processes gave into a row.

    Args:
        outputs: stdout and stderr of each.
        codes: exit status of each; None = it ran past the limit.
        limit: the limit in seconds.
        seconds: that it took.
    """
    counts: Counter[str] = Counter()
    for output in outputs:
        counts += parse_summary(output)
    named = [line for output in outputs for line in _NAMED.findall(output)]
    seen = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome])
    seen = seen or "no summary of pytest's"
    late = codes.count(None)
    if late:
        seen += f"; {late} of {len(codes)} processes ran past {limit:.0f} s"
    broken = sorted({code for code in codes if code not in (0, 1, 5, None)})  # 5: none to run
    if broken:
        seen += f"; pytest ended with {', '.join(map(str, broken))}"
    bad = counts["failed"] + counts["errors"] + counts["xpassed"]
    ok = counts["passed"] > 0 and bad == 0 and all(code in (0, 5) for code in codes)
    return Row(
        part="tests",
        what="kernel tests on CUDA",
        seen=seen,
        aim="all pass",
        ok=ok,
        judged=True,
        figures={
            **{outcome: counts[outcome] for outcome in OUTCOMES},
            "seconds": round(seconds, 1),
            "processes": len(codes),
            "exit_statuses": list(codes),
            "failures": named[:50],
            "output": "" if ok else "\n".join(output[-3000:] for output in outputs)[-12000:],
        },
    )


def run(
    *,
    limit: float,
    targets: Sequence[str] = ("tests/kernels",),
    workers: int | None = None,
) -> Iterator[Row]:
    """Run ``pytest -m gpu`` on ``targets`` and yield one row.

    Warnings are no failures here: what another machine's libraries warn of says nothing about a
    kernel. Other people's plugins stay out for the same reason.

    Args:
        limit: seconds after which the processes are ended.
        targets: paths, from the root of the checkout.
        workers: processes; None = `num_workers`.
    """
    count = num_workers() if workers is None else workers
    environment = {name: text for name, text in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    environment["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // count))
    environment["COLUMNS"] = "200"
    command = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", "--rootdir", "."]
    command += ["-p", "no:cacheprovider", "-p", "bench.gpu.shard", "-W", "default", "-q"]
    command += ["--tb=short", "--color=no", "-m", "gpu", *targets]
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="swarepro-gpu-") as folder:
        logs = [Path(folder) / f"{index}.txt" for index in range(count)]
        processes: list[subprocess.Popen[bytes]] = []
        codes: list[int | None] = []
        try:
            for index, log in enumerate(logs):
                own = ["--shard", f"{index}/{count}", "--basetemp", f"{folder}/tmp-{index}"]
                with log.open("wb") as file:
                    process = subprocess.Popen(
                        [*command, *own],
                        cwd=ROOT,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=file,
                        stderr=subprocess.STDOUT,
                    )
                processes.append(process)
            for process in processes:
                try:
                    codes.append(process.wait(max(0.0, limit - (time.monotonic() - start))))
                except subprocess.TimeoutExpired:
                    codes.append(None)
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        outputs = [log.read_text(encoding="utf-8", errors="replace") for log in logs]
    yield judge(outputs, codes, limit=limit, seconds=time.monotonic() - start)
