"""The exact state of an execution between two steps: frozen, restored, saved, proved by digests."""

from swarepro.frozen.state import (
    RANDOM_STATE,
    REMEMBERED,
    FrozenState,
    LiveState,
    prove_restored,
    state_digests,
)
from swarepro.frozen.tree import StateTree, describe, fill_in

__all__ = [
    "RANDOM_STATE",
    "REMEMBERED",
    "FrozenState",
    "LiveState",
    "StateTree",
    "describe",
    "fill_in",
    "prove_restored",
    "state_digests",
]
