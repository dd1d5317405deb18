"""Digests on a GPU: a kernel for each tensor; 16 bytes of it go to the host after the step."""

from collections.abc import Sequence

import torch

import swarepro_kernels as kernels
from swarepro.capture import DigestAlgorithm
from swarepro_kernels.reference import digest_finish, digest_seeds, digest_terms

_ROWS = 1024


class DeviceDigester:
    """``swd_128`` of tensors on ``device``; a `swarepro.capture.Digester`.

    Index tables on the CPU are moved to the device first, so that one run has one kind of digest.
    """

    algorithm: DigestAlgorithm = "swd_128"

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._tables: list[torch.Tensor] = []
        self._num_pending = 0

    def submit(self, tensor: torch.Tensor) -> None:
        """Launch the digest of ``tensor``; stream order makes it see the tensor as it is now."""
        row = self._num_pending % _ROWS
        if row == 0:
            self._tables.append(torch.empty(_ROWS, 2, dtype=torch.int64, device=self._device))
        kernels.digest(tensor.to(self._device), out=self._tables[-1][row])
        self._num_pending += 1

    def collect(self) -> Sequence[str]:
        """Wait for the device and return the digests since the last call."""
        words = [row for table in self._tables for row in table.cpu().tolist()]
        found = words[: self._num_pending]
        self._tables, self._num_pending = [], 0
        return ["".join(f"{word & (1 << 64) - 1:016x}" for word in row) for row in found]

    def rows(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the first lane of `swarepro_kernels.reference.digest` of each row, if any."""
        count = tensor.shape[0]
        words = torch.empty(count, 0, dtype=torch.int64, device=tensor.device)
        if tensor.numel():
            flat = tensor.reshape(count, -1).contiguous().view(torch.uint8)
            words = torch.nn.functional.pad(flat, (0, -flat.shape[1] % 8)).view(torch.int64)
        index = torch.arange(words.shape[1], device=words.device)
        sums = digest_terms(words, index).sum(-1)
        return digest_finish(sums, digest_seeds(tensor.dtype, tuple(tensor.shape[1:])))[0].cpu()
