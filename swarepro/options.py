"""How a case runs and what is captured: what is not part of the case. No torch here."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from swarepro.points import Level

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many parts are done, and how many there are."""


def no_progress(what: str, done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOptions:
    """What to capture.

    Attributes:
        level: off, boundary or op.
        store: digests alone, or tensors too.
        points: globs of the names that users see.
        layers: global layer ids; empty = all.
        steps: empty = all.
    """

    level: Level = Level.OP
    store: Literal["digest", "tensor"] = "tensor"
    points: tuple[str, ...] = ("*",)
    layers: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How to run a case.

    Attributes:
        faults: names, wrapped in this order, the first one innermost.
        schedule: the order in which concurrent program instances take effect: ``program`` or
            ``seeded:N``, or ``hardware`` for compiled kernels; ``auto`` is ``hardware`` there and
            ``program`` elsewhere.
        device: ``cpu``, ``cuda``, ``cuda:N`` or ``auto``.
        route: attention implementation, or ``auto``.
        capture: what is captured.
        max_bundle_bytes: a larger estimate is refused before anything runs.
        recv: for a stage that does not start at layer 0: the bundle whose hidden states it
            receives.
    """

    faults: tuple[str, ...] = ()
    schedule: str = "auto"
    device: str = "auto"
    route: str = "auto"
    capture: CaptureOptions = field(default_factory=CaptureOptions)
    max_bundle_bytes: int = 2 * 1024**3
    recv: Path | None = None
