"""``python -m bench.gpu``: check a machine with a GPU, in at most four minutes.

Exit status: 0 when all that is judged holds, 1 when something does not, 2 without a CUDA device.
"""

import argparse
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from bench.gpu.report import Clock, Report, Row, failure, guarded

PARTS = ("tests", "defect", "speed")
BIG_MODEL = "synthetic:gemma-4-12b?layers=16"
TESTS_SHARE = 0.45
"""Of the time, what the kernel tests may take beside other parts: mostly the compiler's."""
RESERVE_S = 10.0
"""Nothing new is begun in the last seconds."""


def main(arguments: list[str] | None = None) -> int:
    """Run the parts that are asked for; return the exit status."""
    options = parse(arguments)
    import torch

    log = Console(stderr=True)
    if not torch.cuda.is_available():
        log.print(
            Text(
                f"gpu-check: torch {torch.__version__} finds no CUDA device on this machine;"
                " nothing was checked"
            )
        )
        return 2
    report = Report(machine=machine("cuda"), minutes=options.minutes, parts=options.only)
    seconds = 60 * options.minutes
    watchdog = threading.Timer(seconds, _give_up, (report, options.json))
    watchdog.daemon = True
    watchdog.start()
    run_parts(report, "cuda", Clock(max(0.0, seconds - RESERVE_S)), options.json, log)
    watchdog.cancel()
    return finish(report, options.json)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Return ``json``, ``minutes`` and ``only``; exits with 2 on bad usage."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--minutes", type=float, default=4.0, help="time in all (default: 4)")
    parser.add_argument(
        "--only",
        type=lambda text: tuple(text.split(",")),
        default=PARTS,
        metavar="PARTS",
        help=f"of {','.join(PARTS)}; all when left out",
    )
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.only) - set(PARTS)):
        parser.error(f"no such part: {', '.join(unknown)}; known: {', '.join(PARTS)}")
    if not 0 < options.minutes <= 600:
        parser.error(f"--minutes {options.minutes:g}: more than 0 and at most 600")
    if options.json is not None and not options.json.absolute().parent.is_dir():
        parser.error(f"--json {options.json}: no such folder")
    return options


def machine(device: str) -> dict[str, Any]:
    """Return what the figures were taken on."""
    import torch

    facts: dict[str, Any] = {
        "device": "CPU",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "triton": _version("triton"),
        "swarepro": _version("swarepro"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
    }
    if device.startswith("cuda"):
        properties = torch.cuda.get_device_properties(device)
        facts |= {
            "device": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "memory_bytes": properties.total_memory,
        }
    return facts


def run_parts(
    report: Report, device: str, clock: Clock, json_path: Path | None, log: Console
) -> None:
    """Run the report's parts in order; what one raises is its row, and the others still run."""

    def say(text: str) -> None:
        log.print(Text(text))

    tests_limit = clock.left * (TESTS_SHARE if len(report.parts) > 1 else 1)
    big: Any = None
    for part in PARTS:
        if part not in report.parts:
            continue
        start = time.monotonic()
        try:
            if part != "tests" and big is None:
                big = _big_model(device)
            for row in _part(part, device, big, clock, tests_limit, say):
                report.rows.append(row)
                say(f"{row.part}: {row.what}: {row.seen} {row.verdict}".rstrip())
        except Exception as error:
            report.rows.append(failure(part, part, error))
        report.seconds[part] = time.monotonic() - start
        report.write(json_path)


def _big_model(device: str) -> Any:
    """Choose the process's Triton mode, then return the model that two parts share."""
    from swarepro.runtime.routes import backend_for, resolve_route

    backend_for(resolve_route("auto", device=device), device).activate()
    from bench.gpu.models import LoadedModel

    return LoadedModel(BIG_MODEL, device)


def _part(
    part: str, device: str, big: Any, clock: Clock, tests_limit: float, say: Callable[[str], None]
) -> Iterable[Row]:
    if part == "tests":
        from bench.gpu import kernel_tests

        limit = min(tests_limit, clock.left)
        return guarded(
            part,
            "kernel tests on CUDA",
            lambda: kernel_tests.run(limit=limit),
            clock=clock,
            judged=True,
            say=say,
        )
    if part == "defect":
        from bench.gpu import defect

        return defect.run(device, big, clock=clock, say=say)
    import torch

    from bench.gpu import speed
    from bench.gpu.ratio import Bench
    from bench.gpu.sizes import FULL
    from bench.gpu.timer import CudaTimer

    torch_device = torch.device(device)
    bench = Bench(device=torch_device, timer=CudaTimer(torch_device), sizes=FULL)
    return speed.run(bench, big, clock=clock, say=say)


def finish(report: Report, json_path: Path | None) -> int:
    """Print the table, write the JSON, return the exit status."""
    report.write(json_path)
    console = Console()
    if not console.is_terminal:  # a file or a pipe has no width of its own
        console = Console(width=160)
    console.print(report.table())
    return report.exit_code


def _give_up(report: Report, json_path: Path | None) -> None:
    """End the process when the time is over, whatever hangs, with what is known."""
    error = TimeoutError(f"the check was ended after {report.minutes:g} minutes")
    report.rows.append(failure("check", "time", error))
    finish(report, json_path)
    sys.stdout.flush()
    os._exit(1)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
