"""Rows of the pools that a later step reads otherwise than they were written.

A row is written once. Every later step that shows it has to show the same bytes: a comparison that
joins rows by position takes each at its first write, and would not see that it changed.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from swarepro import points
from swarepro.bundle.read import Bundle
from swarepro.bundle.schema import TensorRecord
from swarepro.compare.floats import Array
from swarepro.compare.rows import Overlap, end_of
from swarepro.compare.windows import cached, windows, words

Spot = tuple[int, str]
"""Session, and name of the boundary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reread:
    """A boundary that shows rows otherwise than the step that wrote them.

    Attributes:
        record: that shows them, the first of its session and layer to do so.
        positions: of the rows, ascending.
    """

    record: TensorRecord
    positions: tuple[int, ...]


def changed_rows(bundle: Bundle, spots: Collection[Spot] | None = None) -> Iterator[Reread]:
    """Yield, in execution order, the first step of each session and layer that shows other rows.

    A session that was reset begins anew; one that takes over rows of another reads what that wrote,
    which is looked at in that one. Each slice is held against the one that showed its rows last, a
    window at a time.

    Args:
        bundle: whose slices are read, where they are stored.
        spots: that are looked at; None = all.

    Raises:
        BundleError: a tensor that seems to show other rows is not what its record says.
    """
    written = {
        (span.session, step.index): span.start
        for step in bundle.manifest.steps
        for span in step.spans
    }
    shown: dict[Spot, _Shown] = {}
    told: set[Spot] = set()
    since: dict[Spot, int] = {}
    for record, begin in repeating(bundle, spots):
        key = record.session, record.name
        if key in told:
            continue
        if since.get(key) != begin:
            since[key] = begin
            shown[key] = _Shown(bundle)
        # An engine may go back and write rows anew, as after a rejected draft: these are its own.
        changed = shown[key].changed(record, before=written[record.session, record.step])
        if changed:
            told.add(key)
            yield Reread(record=record, positions=changed)


class _Shown:
    """Which record of one session and layer showed each row last."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._records: list[TensorRecord] = []
        self._last: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def changed(self, record: TensorRecord, *, before: int) -> tuple[int, ...]:
        """Return positions below ``before`` of rows that ``record`` shows otherwise; keep them."""
        start, end = record.row_start or 0, end_of(record)
        last = np.full(max(end, len(self._last)), -1, dtype=np.int64)
        last[: len(self._last)] = self._last
        again = last[start : max(start, min(before, end))]
        cuts = [0, *(np.flatnonzero(np.diff(again)) + 1).tolist(), len(again)]
        changed: list[int] = []
        for begin, stop in pairwise(cuts):
            if begin < stop and again[begin] >= 0:
                earlier = self._records[again[begin]]
                changed += self._differing(earlier, record, start + begin, start + stop)
        last[max(start, before) :] = -1
        last[start:end] = len(self._records)
        self._records.append(record)
        self._last = last
        return tuple(changed)

    def _differing(
        self, earlier: TensorRecord, record: TensorRecord, start: int, stop: int
    ) -> list[int]:
        """Return positions in ``[start, stop)`` whose rows differ; check tensors that differ."""
        part = Overlap(
            baseline=earlier,
            baseline_row=start - (earlier.row_start or 0),
            target=record,
            target_row=start - (record.row_start or 0),
            num_rows=stop - start,
            position=start,
        )
        found: list[int] = []
        if (earlier.dtype, earlier.shape[1:]) != (record.dtype, record.shape[1:]):
            return list(range(start, stop))
        for row, mine, theirs in windows(self._bundle, self._bundle, part):
            for rows in cached(mine, theirs):
                if not np.array_equal(words(mine[rows]), words(theirs[rows])):
                    differ = _by_row(mine[rows]) != _by_row(theirs[rows])
                    off = np.flatnonzero(differ.any(axis=1))
                    found += (off + start + row + rows.start).tolist()
        if found:
            self._bundle.check(earlier)
            self._bundle.check(record)
        return found


def _by_row(rows: Array) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(rows).reshape(-1).view(np.uint8).reshape(len(rows), -1)


def repeating(
    bundle: Bundle, spots: Collection[Spot] | None = None
) -> list[tuple[TensorRecord, int]]:
    """Return the stored slices of the pools that others of their session and layer go with.

    Each comes with the step at which its session, as it is there, began. What one step alone shows
    cannot have changed.
    """
    began = _beginnings(bundle)
    slices = [
        (record, began[record.session, record.step])
        for record in bundle.records
        if record.point == points.KV_SLICE_POST_WRITE.name
        and record.file is not None
        and (spots is None or (record.session, record.name) in spots)
    ]
    many = Counter((record.session, record.name, begin) for record, begin in slices)
    return [
        (record, begin) for record, begin in slices if many[record.session, record.name, begin] > 1
    ]


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
