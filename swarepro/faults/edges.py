"""Defects of what crosses from one stage to the next."""

import torch

from swarepro.faults.base import Effect, register
from swarepro.runtime.wrappers import EdgeWrapper, on_edge


class SendsDelta(EdgeWrapper):
    """A stage sends what its last layer adds to the stream, and keeps the stream to itself."""

    def send(self, hidden: torch.Tensor, entered: torch.Tensor) -> torch.Tensor:
        """Send one of two planes, the wrong one."""
        return super().send(hidden, entered) - entered


class SendsTwoPlanes(EdgeWrapper):
    """A stage sends its last layer's delta and the stream before it, which only add up to one."""

    def send(self, hidden: torch.Tensor, entered: torch.Tensor) -> torch.Tensor:
        """Send two planes side by side."""
        return torch.cat([super().send(hidden, entered) - entered, entered], dim=-1)


class ScalesAgain(EdgeWrapper):
    """What a stage receives is scaled as an embedding's rows are, though it was once already."""

    def receive(self, sent: torch.Tensor) -> torch.Tensor:
        """Scale what was sent."""
        scale = torch.tensor(sent.shape[-1] ** 0.5, dtype=sent.dtype, device=sent.device)
        return super().receive(sent) * scale


class CastsToBfloat16(EdgeWrapper):
    """What is sent travels in bfloat16, whatever the run's dtype is."""

    def receive(self, sent: torch.Tensor) -> torch.Tensor:
        """Round what was sent."""
        return super().receive(sent).to(torch.bfloat16).to(sent.dtype)


register(
    "edge-sends-delta",
    "G1",
    "a stage sends what its last layer adds to the residual stream in place of the stream",
    part="edge",
    effect=Effect.DIVERGES,
    wrap=on_edge(SendsDelta),
)
register(
    "edge-sends-two-planes",
    "G1",
    "a stage sends two planes where the next one wants one",
    part="edge",
    effect=Effect.IDENTICAL,
    wrap=on_edge(SendsTwoPlanes),
)
register(
    "edge-scales-again",
    "G3",
    "a stage without an embedding scales what it receives as if it were an embedding's rows",
    part="edge",
    effect=Effect.DIVERGES,
    wrap=on_edge(ScalesAgain),
)
register(
    "edge-casts-to-bf16",
    "G3",
    "what one stage sends to the next is rounded to bf16 on the way",
    part="edge",
    effect=Effect.DIVERGES,
    wrap=on_edge(CastsToBfloat16),
)
