"""Hashing a bundle's tensors while their rows are read for something else: bytes are read once."""

from dataclasses import dataclass, field

import numpy as np
import xxhash

from swarepro.bundle.read import Bundle
from swarepro.bundle.schema import TensorRecord
from swarepro.compare.floats import Array


@dataclass(slots=True)
class _Read:
    """How far a record was read from its first row on, without a gap."""

    record: TensorRecord
    rows: int = 0
    state: xxhash.xxh3_128 = field(default_factory=xxhash.xxh3_128)


class Reading:
    """Checks the tensors of one bundle by the rows that were read of them.

    Args:
        bundle: rows are those of its tensors.
    """

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._reads: dict[int, _Read] = {}

    def see(self, record: TensorRecord, rows: Array, *, row: int) -> None:
        """Take note of contiguous ``rows`` of ``record`` from ``row`` on."""
        read = self._reads.setdefault(record.index, _Read(record))
        if row == read.rows and record.algorithm == "xxh3_128":
            read.state.update(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data)
            read.rows += rows.shape[0]

    def check(self) -> int:
        """Check every tensor of which rows were seen, and return how many there are.

        One that was not read whole, and in order, is read again.

        Raises:
            BundleError: its bytes are not those of its record.
        """
        for read in self._reads.values():
            whole = read.rows == read.record.shape[0]
            if not whole or read.state.hexdigest() != read.record.digest:
                self._bundle.check(read.record)
        return len(self._reads)
