"""Where a run computes: device and Triton mode.

The only module that reads or writes the environment.
"""

import os
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from swarepro.errors import BackendError

if TYPE_CHECKING:
    import torch

TritonMode = Literal["off", "interpret", "compiled"]
_INTERPRET = "TRITON_INTERPRET"


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

    def activate(self) -> None:
        """Choose the process's Triton mode; call it before a kernel is imported.

        ``triton.jit`` reads ``TRITON_INTERPRET`` when it decorates: one process has one mode.

        Raises:
            BackendError: Triton is not installed, or was loaded in the other mode already.
        """
        if self.triton == "off":
            return
        if find_spec("triton") is None:
            raise BackendError(
                "this route needs Triton, which is not installed",
                hint="install triton (Linux), or use --route eager",
            )
        wanted = self.triton == "interpret"
        interprets = os.environ.get(_INTERPRET, "").lower() in ("1", "true", "yes", "on", "y")
        if interprets and not wanted and "triton" not in sys.modules:
            raise BackendError(
                f"{_INTERPRET} is set, and compiled kernels were asked for",
                hint=f"unset {_INTERPRET}, or use --device cpu",
            )
        loaded = any(name in sys.modules for name in ("triton", "swarepro_kernels.launch"))
        if loaded and interprets != wanted:
            raise BackendError(
                f"this process has loaded Triton for the other mode; {self.triton!r} was asked for",
                hint="run the two routes in processes of their own",
            )
        if wanted:
            os.environ[_INTERPRET] = "1"


def choose_device(device: str) -> str:
    """Return the device for ``cpu``, ``cuda`` (optionally ``cuda:N``) or ``auto``.

    ``auto`` is CUDA where torch finds a device, else the CPU. Raises BackendError for a device that
    is not there: an explicit request never falls back.
    """
    import torch

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    kind = device.partition(":")[0]
    if device == "cpu":
        return "cpu"
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
    return device


def torch_dtype(name: str) -> "torch.dtype":
    """Return torch's dtype for ``bf16``, ``fp16``, ``fp32`` or ``fp64``."""
    import torch

    return {
        "bf16": torch.bfloat16,
        "fp16": torch.float16,
        "fp32": torch.float32,
        "fp64": torch.float64,
    }[name]


def cache_dir() -> Path:
    """Return the folder for files that can be made again; it need not exist."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "swarepro"


def physical_memory() -> int:
    """Return the bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
