"""Digests of captured tensors, computed where the tensors are."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from swarepro.bundle.digest import digest_bytes, digest_rows
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

    def rows(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a digest of each row of ``tensor [N, ...]`` at once, ``[N]`` int64 on the CPU."""
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

    def rows(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the XXH3-64 of each row's bytes."""
        count = tensor.shape[0]
        if not tensor.numel():
            return torch.zeros(count, dtype=torch.int64)
        data = raw_bytes(tensor)
        return torch.from_numpy(
            np.array(digest_rows(data, len(data) // count), dtype=np.uint64).view(np.int64)
        )


def raw_bytes(tensor: torch.Tensor) -> memoryview:
    """Return the row-major bytes of ``tensor``; they alias it when it is contiguous on the CPU."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data
