"""Rows of the pools that a later step reads otherwise than they were written.

A row is written once. Every later step that shows it has to show the same bytes: a comparison that
joins rows by position takes each at its first write, and would not see that it changed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from swarepro import points
from swarepro.bundle.digest import digest_rows
from swarepro.bundle.read import Bundle
from swarepro.bundle.schema import TensorRecord

_Key = tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reread:
    """A boundary that shows rows otherwise than the step that wrote them.

    Attributes:
        record: that shows them, the first of its session and layer to do so.
        positions: of the rows, ascending.
    """

    record: TensorRecord
    positions: tuple[int, ...]


def changed_rows(bundle: Bundle) -> Iterator[Reread]:
    """Yield, in execution order, the first step of each session and layer that shows other rows.

    A session that was reset begins anew; one that takes over rows of another reads what that wrote,
    which is looked at in that one.

    Raises:
        BundleError: a tensor is not what its record says.
    """
    began = _beginnings(bundle)
    written = {
        (span.session, step.index): span.start
        for step in bundle.manifest.steps
        for span in step.spans
    }
    rows: dict[_Key, npt.NDArray[np.uint64]] = {}
    told: set[_Key] = set()
    since: dict[_Key, int] = {}
    for record in bundle.records:
        if record.point != points.KV_SLICE_POST_WRITE.name or record.file is None:
            continue
        key = record.session, record.name
        begin = began[record.session, record.step]
        if since.get(key) != begin:
            since[key] = begin
            rows.pop(key, None)
        start = record.row_start or 0
        mine = np.array(digest_rows(*_bytes(bundle, record)), dtype=np.uint64)
        known = rows.get(key, np.zeros(0, dtype=np.uint64))
        old = np.zeros(max(len(known), start + len(mine)), dtype=np.uint64)
        old[: len(known)] = known
        # An engine may go back and write rows anew, as after a rejected draft: these are its own.
        old[max(start, written[record.session, record.step]) :] = 0
        before = old[start : start + len(mine)]
        changed = np.flatnonzero((before != 0) & (before != mine))
        if changed.size and key not in told:
            told.add(key)
            yield Reread(record=record, positions=tuple((changed + start).tolist()))
        before[before == 0] = mine[before == 0]
        rows[key] = old


def _bytes(bundle: Bundle, record: TensorRecord) -> tuple[memoryview, int]:
    """Return the bytes of a record, and those of one row."""
    data = np.ascontiguousarray(bundle.tensor(record)).view(np.uint8).reshape(-1)
    return data.data, data.nbytes // max(1, record.shape[0])


def _beginnings(bundle: Bundle) -> dict[tuple[int, int], int]:
    """Return for each session and step the step at which the session, as it is there, began."""
    began: dict[tuple[int, int], int] = {}
    current: dict[int, int] = {}
    for step in bundle.manifest.steps:
        if step.reset:
            current.clear()
        for action in step.actions:
            current.pop(action.session, None)
        for span in step.spans:
            current.setdefault(span.session, step.index)
            began[span.session, step.index] = current[span.session]
    return began
