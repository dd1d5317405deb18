"""What a report says about where a run ran, from package metadata: no torch is imported."""

import os
import platform
from importlib import metadata
from pathlib import Path

from swarepro import __version__
from swarepro.bundle.schema import Environment

PACKAGES = (
    "torch",
    "triton",
    "numpy",
    "safetensors",
    "msgspec",
    "xxhash",
    "gguf",
    "transformers",
)


def read_environment(*, gpu: str | None = None) -> Environment:
    """Return the versions and the hardware of this process.

    Args:
        gpu: the device's name, from a caller that has torch at hand; None without one.
    """
    return Environment(
        swarepro=__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        cpu=_cpu_name(),
        num_cpus=os.cpu_count() or 1,
        packages=_versions(),
        gpu=gpu,
    )


def _versions() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()
