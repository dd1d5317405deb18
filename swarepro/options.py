"""How a case runs and what is captured: what is not part of the case. No torch here."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from swarepro.points import Level

Fill = Literal["zero", "large", "nan"]
FILL_VALUES: dict[Fill, float] = {"zero": 0.0, "large": 1e4, "nan": math.nan}
"""1e4 is finite in every dtype, and no value of a healthy run is near it."""

Engine = Literal["paged", "dense", "dense-fp64"]
DENSE_DTYPES: dict[Engine, Literal["fp32", "fp64"]] = {"dense": "fp32", "dense-fp64": "fp64"}
"""In what the reference without a pool computes, by engine."""

HfAttention = Literal["eager", "sdpa"]
"""transformers' attention functions that a run of it can be captured with."""

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
        ownership: whether the ownership shadow watches the run; None = where there are slots.
        fill: what pools and scratch hold that nobody wrote: zeros, a large finite value, or NaN;
            None = zeros, but for the memory of partial results, which a seeded schedule draws.
        recv: for a stage that does not start at layer 0: the bundle whose hidden states it
            receives.
        engine: ``paged`` is the stage runtime; ``dense`` and ``dense-fp64`` are the reference
            without pool, mapping and route, which computes in float32 or float64.
    """

    faults: tuple[str, ...] = ()
    schedule: str = "auto"
    device: str = "auto"
    route: str = "auto"
    capture: CaptureOptions = field(default_factory=CaptureOptions)
    max_bundle_bytes: int = 2 * 1024**3
    ownership: bool | None = None
    fill: Fill | None = None
    recv: Path | None = None
    engine: Engine = "paged"

    @property
    def is_watched(self) -> bool:
        """Whether the ownership shadow watches: the reference has no slot that it could watch."""
        return self.engine == "paged" and self.ownership is not False
