"""What crosses from one stage to the next."""

import torch


class StreamEdge:
    """The edge of a stage: the residual stream is sent and received as it is."""

    def send(self, hidden: torch.Tensor, entered: torch.Tensor) -> torch.Tensor:
        """Return ``hidden [T, E]``."""
        return hidden

    def receive(self, sent: torch.Tensor) -> torch.Tensor:
        """Return ``sent [T, E]``."""
        return sent
