"""How long work on a device takes: the median of many rounds, each from a cold cache."""

import statistics
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

Work = Callable[[], object]
FLUSH_BYTES = 2**30
"""Read between rounds: more than any L2, and so long that the host is ahead of the device."""


class Timer(Protocol):
    """Returns the median time of ``work`` in milliseconds."""

    def __call__(self, work: Work) -> float:
        """Time ``work``."""
        ...


class CudaTimer:
    """Times with CUDA events.

    The cache is flushed by reading, which leaves nothing in it that a later write-back would pay
    for. While the device reads, the host enqueues the work: launches do not count.

    Args:
        device: a CUDA device.
        rounds: that are timed.
        warm_up: before them, so that kernels are compiled and loaded.
    """

    def __init__(self, device: torch.device, *, rounds: int = 25, warm_up: int = 3) -> None:
        self._flush = torch.ones(FLUSH_BYTES // 4, dtype=torch.float32, device=device)
        self._device = device
        self._rounds = rounds
        self._warm_up = warm_up

    def __call__(self, work: Work) -> float:
        """Time ``work``."""
        for _ in range(self._warm_up):
            work()
            self._flush.sum()
        torch.cuda.synchronize(self._device)
        stream = torch.cuda.current_stream(self._device)
        events = []
        for _ in range(self._rounds):
            start, end = _event(), _event()
            self._flush.sum()
            start.record(stream)
            work()
            end.record(stream)
            events.append((start, end))
        torch.cuda.synchronize(self._device)
        return float(statistics.median(start.elapsed_time(end) for start, end in events))


class WallTimer:
    """Times with the host's clock: for the CPU, where nothing is flushed."""

    def __init__(self, *, rounds: int = 1) -> None:
        self._rounds = rounds

    def __call__(self, work: Work) -> float:
        """Time ``work``."""
        work()
        times = []
        for _ in range(self._rounds):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        return max(1e3 * statistics.median(times), 1e-6)


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
