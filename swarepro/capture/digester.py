"""Digests of captured tensors, computed where the tensors are."""

from collections.abc import Sequence
from typing import Protocol

import torch

from swarepro.bundle.digest import digest_bytes
from swarepro.bundle.schema import DigestAlgorithm


class Digester(Protocol):
    """Takes tensors while they are live, and gives their digests when a step has ended."""

    @property
    def algorithm(self) -> DigestAlgorithm:
        """Which digest it computes."""

    def submit(self, tensor: torch.Tensor) -> None:
        """Digest ``tensor`` as it is now; it may change afterwards."""
        ...

    def collect(self) -> Sequence[str]:
        """Return 32 hex digits for each tensor since the last call, in order."""
        ...


class HostDigester:
    """XXH3-128 of the bytes, on the CPU; a tensor on a device is copied there, whole."""

    algorithm: DigestAlgorithm = "xxh3_128"

    def __init__(self) -> None:
        self._digests: list[str] = []

    def submit(self, tensor: torch.Tensor) -> None:
        """Digest the bytes."""
        self._digests.append(digest_bytes(raw_bytes(tensor)))

    def collect(self) -> Sequence[str]:
        """Return the digests since the last call."""
        digests, self._digests = self._digests, []
        return digests


def raw_bytes(tensor: torch.Tensor) -> memoryview:
    """Return the row-major bytes of ``tensor``; they alias it when it is contiguous on the CPU."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data
