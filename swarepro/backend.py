"""Where a run computes: device and Triton mode.

The only module that reads or writes the environment.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from swarepro.errors import BackendError

if TYPE_CHECKING:
    import torch

TritonMode = Literal["off", "interpret", "compiled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A device and how Triton kernels run on it."""

    device: str
    triton: TritonMode

    @property
    def torch_device(self) -> "torch.device":
        """The device as torch names it."""
        import torch

        return torch.device(self.device)


def choose_backend(device: str) -> Backend:
    """Return the backend for ``cpu``, ``cuda`` (optionally ``cuda:N``) or ``auto``.

    ``auto`` is CUDA where torch finds a device, else the CPU. Raises BackendError for a device that
    is not there: an explicit request never falls back.
    """
    import torch

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    kind = device.partition(":")[0]
    if device == "cpu":
        return Backend(device="cpu", triton="off")
    if kind != "cuda":
        raise BackendError(f"unknown device {device!r}", hint="known: auto, cpu, cuda, cuda:N")
    if not torch.cuda.is_available():
        raise BackendError(
            f"device {device!r} was asked for and torch {torch.__version__} finds no CUDA device",
            hint="use --device cpu, or install a CUDA build of torch",
        )
    try:
        torch.cuda.get_device_properties(device)
    except (AssertionError, RuntimeError) as error:
        raise BackendError(f"no such device: {device!r}: {error}") from None
    return Backend(device=device, triton="off")


def torch_dtype(name: str) -> "torch.dtype":
    """Return torch's dtype for ``bf16``, ``fp16`` or ``fp32``."""
    import torch

    return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[name]


def cache_dir() -> Path:
    """Return the folder for files that can be made again; it need not exist."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "swarepro"


def physical_memory() -> int:
    """Return the bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
