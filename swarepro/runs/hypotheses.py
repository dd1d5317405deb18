"""Runs of known defects, as far as the boundary that is to be explained."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from swarepro.bundle.dtypes import DTYPES
from swarepro.bundle.schema import TensorRecord
from swarepro.compare.floats import Array
from swarepro.compare.names import ranks
from swarepro.runs.once import execution
from swarepro.runs.prepare import Prepared

Place = tuple[int, str, int, int]
"""Step, name, session, and rank among those of the session: what tells records apart."""


@dataclass(slots=True)
class Kept:
    """What a run left in memory: all records, and the bytes of one boundary.

    Attributes:
        name: of the boundary whose bytes are kept.
        records: in execution order.
    """

    name: str
    records: list[TensorRecord] = field(default_factory=list)
    _bytes: dict[int, bytes] = field(default_factory=dict)

    def add(self, record: TensorRecord, data: memoryview | None) -> None:
        """Keep the record, and its bytes if they are wanted."""
        self.records.append(record)
        if record.name == self.name and data is not None:
            self._bytes[record.index] = bytes(data)

    def end_step(self) -> None:
        """Do nothing."""

    def rows(self, record: TensorRecord, start: int, stop: int) -> Array:
        """Return rows of a record whose bytes were kept."""
        flat = np.frombuffer(self._bytes[record.index], dtype=DTYPES[record.dtype].view)
        return flat.reshape(record.shape)[start:stop]


def run_hypothesis(prepared: Prepared, fault: str | None, *, name: str, steps: int) -> Kept:
    """Run the first ``steps`` steps of a prepared case with one more fault, or without.

    Args:
        prepared: with a capture that takes in all that is to be compared, as tensors.
        fault: wrapped outermost of all; None = a healthy run.
        name: of the boundary whose bytes are kept.
        steps: how many.

    Raises:
        SwareproError: the run ends with an error.
    """
    kept = Kept(name)
    if fault is not None:
        faults = (*prepared.options.faults, fault)
        prepared = replace(prepared, options=replace(prepared.options, faults=faults))
    run = execution(prepared, kept, schedule=prepared.schedule)
    run.run_steps(slice(0, steps))
    return kept


def captured_to(prepared: Prepared, layer: int | None) -> Prepared:
    """Return the same with layers captured up to ``layer``; None = all."""
    layers = () if layer is None else tuple(range(layer + 1))
    return replace(prepared, capture=msgspec.structs.replace(prepared.capture, layers=layers))


def as_digests(prepared: Prepared) -> Prepared:
    """Return the same with every boundary captured as a digest."""
    capture = msgspec.structs.replace(prepared.capture, store="digest", layers=())
    return replace(prepared, capture=capture)


def places(records: Sequence[TensorRecord]) -> dict[Place, TensorRecord]:
    """Return the records of a run, in execution order, by what tells them apart."""
    return {
        (record.step, record.name, record.session, rank): record
        for record, rank in zip(records, ranks(records), strict=True)
    }
