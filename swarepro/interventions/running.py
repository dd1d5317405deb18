"""Interventions on how a step runs: its order, its route, and when the device is waited for."""

from collections.abc import Callable
from dataclasses import replace

import torch

from swarepro.interventions.base import FACTORS, Factor, Means, Ran, Scope
from swarepro.runtime.parts import Attention, AttentionCall, PartWrapper
from swarepro.runtime.wrappers import AttentionWrapper, on_attention


class SyncBefore(AttentionWrapper):
    """Waits for the device before every attention call."""

    def __init__(self, inner: Attention, synchronize: Callable[[], None]) -> None:
        super().__init__(inner)
        self._synchronize = synchronize

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Wait, then attend."""
        self._synchronize()
        return super().attend(call)


def _sync(means: Means) -> PartWrapper:
    return on_attention(lambda inner: SyncBefore(inner, means.synchronize))


def _alternate(means: Means) -> PartWrapper:
    return lambda parts: replace(parts, attention=means.other_attention(parts.schedule))


def _no_effect_on_cpu(ran: Ran) -> str | None:
    if ran.device.startswith("cuda"):
        return None
    return "on the CPU all work is done when a call returns, so waiting changes nothing"


def _orders(ran: Ran) -> str | None:
    if ran.schedule == "hardware":
        return "the device chooses the order of compiled kernels; it cannot be fixed"
    return None


FACTORS.register(
    "sync-before-attention",
    Factor(
        name="sync-before-attention",
        summary="the device is waited for before every attention call: an ordering problem, if so",
        part="attention",
        scope=Scope.TARGET,
        wrap=_sync,
        caution=_no_effect_on_cpu,
    ),
)
FACTORS.register(
    "alternate-route",
    Factor(
        name="alternate-route",
        summary="the other legal attention implementation runs: one kernel's fault, if so",
        part="attention",
        scope=Scope.TARGET,
        wrap=_alternate,
    ),
)
FACTORS.register(
    "program-order",
    Factor(
        name="program-order",
        summary="launches take one fixed order: something depends on the order, if so",
        part="schedule",
        scope=Scope.TARGET,
        applies=_orders,
        schedule="program",
    ),
)
