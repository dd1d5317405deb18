"""What later readings of pool rows add to boundaries whose rows were joined by position."""

from collections.abc import Sequence

from swarepro.bundle.read import Bundle
from swarepro.bundle.schema import TensorRecord
from swarepro.compare.align import JoinedRows
from swarepro.compare.judge import Judged
from swarepro.compare.rereads import Reread, Spot, changed_rows, repeating
from swarepro.compare.rows import end_of
from swarepro.compare.types import Verdict


class Steadiness:
    """Holds every later reading of a joined pool row against its first write, on both sides.

    No tolerance is asked: it is one side's own bytes that have to stay.

    Args:
        baseline: one run.
        target: the other.
        joined: the boundaries that are compared.

    Attributes:
        checked: slices of the pools that were read for that, on both sides.
        unsteady: the baseline's records that show rows otherwise than it wrote them.

    Raises:
        BundleError: a tensor is not what its record says.
    """

    def __init__(self, baseline: Bundle, target: Bundle, joined: Sequence[JoinedRows]) -> None:
        spots = {
            (part.baseline.session, part.baseline.name)
            for boundary in joined
            for part in boundary.overlaps[:1]
        }
        self._baseline, self._target = baseline, target
        self._changed = _by_spot(target, spots)
        self._measure = _by_spot(baseline, spots)
        self.checked = sum(len(repeating(bundle, spots)) for bundle in (baseline, target))
        self.unsteady = tuple(again.record for again in self._measure.values())

    def judge(self, joined: JoinedRows, found: Judged | None) -> Judged | None:
        """Return what a boundary is, of which ``found`` was found at the first writes.

        Rows that changed in the target are where it diverges, unless it does before. Where they did
        in the baseline alone, nothing that looks equal is measured by them.
        """
        first = joined.overlaps[0].baseline
        spot = first.session, first.name
        diverged = found is not None and found.verdict is Verdict.DIVERGED
        again = self._changed.get(spot)
        if again is not None:
            at = _reaching(self._baseline, spot, again)
            if found is not None and diverged and found.baseline.index <= at.index:
                return found
            return Judged(
                baseline=at,
                target=again.record,
                verdict=Verdict.DIVERGED,
                reason=f"the target shows {_rows(again)} otherwise than it wrote them",
                reread=True,
            )
        again = self._measure.get(spot)
        if again is None or diverged:
            return found
        return Judged(
            baseline=again.record,
            target=_reaching(self._target, spot, again),
            verdict=Verdict.INCOMPARABLE,
            reason=f"the baseline shows {_rows(again)} otherwise than it wrote them: it is no"
            " measure",
        )


def _by_spot(bundle: Bundle, spots: set[Spot]) -> dict[Spot, Reread]:
    return {(a.record.session, a.record.name): a for a in changed_rows(bundle, spots)}


def _reaching(bundle: Bundle, spot: Spot, again: Reread) -> TensorRecord:
    """Return where ``bundle`` reaches the last row that the other run's record shows, or ends."""
    own = [r for r in bundle.records if (r.session, r.name) == spot]
    end = end_of(again.record)
    return next((record for record in own if end_of(record) >= end), own[-1])


def _rows(again: Reread) -> str:
    first, last = again.positions[0], again.positions[-1]
    where = f"position {first}" if first == last else f"positions {first} to {last}"
    many = len(again.positions)
    if many == last - first + 1:
        return f"the row of {where}" if many == 1 else f"the rows of {where}"
    return f"{many} rows of {where}"
