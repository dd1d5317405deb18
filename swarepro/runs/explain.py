"""Holds every known defect against the first boundary where two runs part."""

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path

import numpy as np
import numpy.typing as npt

from swarepro.bundle.read import Bundle, open_bundle
from swarepro.bundle.schema import Manifest, StageEntry, TensorRecord
from swarepro.case import convert_case
from swarepro.compare.assess import floor_kind
from swarepro.compare.explanation import Explanation, Fit, Hypothesis
from swarepro.compare.floor import Floor, read_floor
from swarepro.compare.limits import MARGIN, Limits, limits_of
from swarepro.compare.names import shown_name, told_apart
from swarepro.compare.rows import end_of, first_appearances
from swarepro.compare.settings import differences
from swarepro.compare.spread import vector_errors
from swarepro.compare.stacked import ReadRows, Stacked, num_differing, stacked
from swarepro.errors import IncomparableError, SwareproError
from swarepro.faults import FAULTS, Fault
from swarepro.options import CaptureOptions, Progress, RunOptions
from swarepro.points import Level
from swarepro.runs.hypotheses import Kept, as_digests, captured_to, places, run_hypothesis
from swarepro.runs.once import stage_entries
from swarepro.runs.parting import Parting, check_same_subject, first_parting
from swarepro.runs.prepare import Prepared, prepare

_BEST_FIRST: tuple[Fit, ...] = ("exact", "within", "leaves", "none", "earlier", "error")
_ANY_SIZE = 1 << 62
"""Nothing of it is written."""


def explain_bundles(
    baseline: Path, target: Path, *, floor: Path | None, progress: Progress
) -> Explanation:
    """See `swarepro.api.explain_runs`."""
    sides = open_bundle(baseline), open_bundle(target)
    check_same_subject(sides[0].manifest, sides[1].manifest)
    made = None if floor is None else read_floor(floor)
    first = first_parting(*sides, made, floor)
    # Run as the target ran, a defect's run is the target's to the byte, whatever the baseline's
    # chunks and route were.
    target_says = _says_its_case(sides[1].manifest)
    prepared = _prepared(sides[1 if target_says else 0].manifest, progress)
    search = _Search(*sides, first, made, prepared, as_target=target_says, progress=progress)
    earlier = search.earlier
    if earlier is not None:
        # Slots and the like are no matter of a floor, but a defect may show in them first. Where it
        # is no defect that shows there, but another machine, none of them will fit to the byte.
        found = _Search(
            *sides, earlier, made, prepared, as_target=target_says, progress=progress
        ).run()
        if found.best and found.best[0].fit == "exact":
            return found
        if made is None:
            raise IncomparableError(
                "a healthy run of the target's case is not the target here: they part at"
                f" step {earlier.step} {earlier.shown}, before step {first.step} {first.shown}",
                hint="it ran elsewhere, or with another version: measure a floor (`swarepro"
                " calibrate`) and give it with --floor",
            )
    return search.run()


class _Search:
    """One boundary, and the known defects."""

    def __init__(
        self,
        baseline: Bundle,
        target: Bundle,
        first: Parting,
        floor: Floor | None,
        prepared: Prepared,
        *,
        as_target: bool,
        progress: Progress,
    ) -> None:
        self._baseline, self._target, self._first = baseline, target, first
        self._progress = progress
        self._by_place = places(target.records)
        self._record = _record(target, first)
        self._theirs = _rows(target, first, step=self._record.step)
        self._prepared = captured_to(prepared, self._record.layer)
        self._last = self._record.step if as_target else _reaching(baseline.manifest, self._record)
        self._limits = self._noise(floor)
        healthy = self._run(None)
        self._ours = self._stack(healthy) if self._theirs else None
        self._healthy = healthy.records
        # Another engine's bytes, and its steps, are its own: they part everywhere, and say nothing.
        other = self._parting(healthy) if as_target else None
        self._to_the_byte = as_target and other is None
        self.earlier = None
        """Where the target and a healthy run of its own case part before the boundary, if so."""
        if other is not None:
            self.earlier = other

    def run(self) -> Explanation:
        """Hold each defect against the boundary, and those that fit against the whole run."""
        faults = [fault for name, fault in FAULTS if name not in self._prepared.case.background]
        found = []
        for done, fault in enumerate(faults):
            self._progress("holding known defects against it", done, len(faults))
            found.append(self._try(fault))
        self._progress("holding known defects against it", len(faults), len(faults))
        exact = [each for each in found if each.fit == "exact"]
        if self._to_the_byte and len(exact) > 1:
            counted = {each.fault: self._equal(each.fault) for each in exact}
            found = [replace(each, equal=counted.get(each.fault)) for each in found]
        found.sort(key=_rank)
        positions = self._positions(self._ours)
        apart = 0
        total = 0
        if positions is not None and self._ours is not None and self._theirs is not None:
            total = self._theirs.at(positions).size
            apart = num_differing(self._ours, self._theirs, positions)
        return Explanation(
            baseline=str(self._baseline.path),
            target=str(self._target.path),
            step=self._record.step,
            session=self._first.session,
            name=self._first.shown,
            layer=self._record.layer,
            kind=self._record.kind,
            num_values=total,
            baseline_differing=apart,
            boundaries=len(self._by_place),
            hypotheses=tuple(found),
            differences=differences(self._baseline.manifest, self._target.manifest),
        )

    def _try(self, fault: Fault) -> Hypothesis:
        hypothesis = Hypothesis(
            fault=fault.name, mechanism=fault.mechanism, summary=fault.summary, fit="none"
        )
        try:
            kept = self._run(fault.name)
        except SwareproError as error:
            return replace(hypothesis, fit="error", error=error.message)
        if self._to_the_byte:
            earlier = self._parting(kept)
            if earlier is not None:
                return replace(
                    hypothesis, fit="earlier", earlier=f"step {earlier.step} {earlier.shown}"
                )
        return self._hold(hypothesis, kept)

    def _run(self, fault: str | None) -> Kept:
        """Run the case as far as the boundary."""
        return run_hypothesis(self._prepared, fault, name=self._first.name, steps=self._last + 1)

    def _stack(self, kept: Kept) -> Stacked | None:
        records = _with_positions(self._of(kept.records))
        return _stacked(records, kept.rows, step=self._last)

    def _of(
        self, records: Sequence[TensorRecord], *, step: int | None = None
    ) -> list[TensorRecord]:
        """Return a run's records of the boundary in question."""
        return _of(stage_entries(self._prepared), records, self._first, step=step)

    def _parting(self, kept: Kept) -> Parting | None:
        """Return the first boundary before the one in question at which a run is not the target."""
        marked = told_apart(stage_entries(self._prepared), kept.records)
        for (place, record), (_, mark) in zip(places(kept.records).items(), marked, strict=True):
            theirs = self._by_place.get(place)
            if theirs is None or theirs.algorithm != record.algorithm:
                continue
            if theirs.index >= self._record.index:
                continue
            if (theirs.digest, theirs.shape) != (record.digest, record.shape):
                return Parting(
                    step=record.step,
                    session=record.session,
                    name=record.name,
                    mark=mark,
                    shown=shown_name(record, place[-1]),
                )
        return None

    def _hold(self, hypothesis: Hypothesis, kept: Kept) -> Hypothesis:
        """Compare the boundary of a run with the target's: to the byte, or as numbers."""
        mine = self._stack(kept)
        if mine is None or self._ours is None or self._theirs is None:
            return self._by_digest(hypothesis, kept)
        positions = self._positions(mine)
        if positions is None or mine.rows.shape[1:] != self._theirs.rows.shape[1:]:
            return replace(hypothesis, fit="error", error="the boundary has another shape with it")
        differing = num_differing(mine, self._theirs, positions)
        if not num_differing(mine, self._ours, positions):
            return replace(hypothesis, fit="none", differing=differing)
        if mine.dtype == self._theirs.dtype and not differing:
            return replace(hypothesis, fit="exact", differing=0, remainder=0.0)
        values = [side.values(positions) for side in (mine, self._theirs, self._ours)]
        remainder = _remainder(*values)
        fit: Fit = "within" if self._is_noise(values[0], values[1]) else "leaves"
        return replace(hypothesis, fit=fit, differing=differing, remainder=remainder)

    def _by_digest(self, hypothesis: Hypothesis, kept: Kept) -> Hypothesis:
        """Compare a boundary whose rows are no positions, or that was stored as a digest."""
        mine = next(iter(self._of(kept.records, step=self._last)), None)
        healthy = self._of(self._healthy, step=self._last)
        ours = healthy[0] if healthy else None
        if mine is None:
            return replace(hypothesis, fit="error", error="it does not reach the boundary")
        if mine.digest == self._record.digest and mine.shape == self._record.shape:
            return replace(hypothesis, fit="exact")
        if ours is not None and (mine.digest, mine.shape) == (ours.digest, ours.shape):
            return replace(hypothesis, fit="none")
        return replace(hypothesis, fit="leaves")

    def _positions(self, mine: Stacked | None) -> npt.NDArray[np.int64] | None:
        """Return the positions that all sides have; None where there are none."""
        if mine is None or self._ours is None or self._theirs is None:
            return None
        common = np.intersect1d(
            np.intersect1d(mine.positions, self._theirs.positions), self._ours.positions
        )
        return common if common.size else None

    def _is_noise(self, mine: npt.NDArray[np.float64], theirs: npt.NDArray[np.float64]) -> bool:
        if self._limits is None:
            return False
        errors, relative_l2 = vector_errors(theirs, mine)
        return bool(
            (errors <= self._limits.worst).all() and relative_l2 <= self._limits.relative_l2
        )

    def _noise(self, floor: Floor | None) -> Limits | None:
        if floor is None:
            return None
        for entry in floor.entries:
            if (entry.point, entry.layer) == (self._record.point, self._record.layer):
                kind = floor_kind(floor, self._baseline.manifest, self._target.manifest)
                dtypes = self._record.dtype, self._record.dtype
                return limits_of(entry, kind, dtypes=dtypes, is_source=False, margin=MARGIN)
        return None

    def _equal(self, fault: str) -> int:
        """Return how many boundaries of the whole run are the target's with ``fault``."""
        steps = len(self._prepared.plan.steps)
        try:
            kept = run_hypothesis(as_digests(self._prepared), fault, name="", steps=steps)
        except SwareproError:
            return 0
        return sum(
            (theirs := self._by_place.get(place)) is not None
            and (theirs.digest, theirs.shape) == (record.digest, record.shape)
            for place, record in places(kept.records).items()
        )


def _says_its_case(manifest: Manifest) -> bool:
    """Return whether the stage runtime ran what the manifest says, so that it can run it again."""
    return manifest.backend.engine == "paged" and "imported" not in manifest.case


def _record(target: Bundle, first: Parting) -> TensorRecord:
    """Return the target's record of the boundary in question."""
    for record in _of(target.manifest.stages, target.records, first):
        if first.position is None:
            if record.step == first.step:
                return record
        elif first.position in range(record.row_start or 0, end_of(record)):
            return record
    raise IncomparableError(
        f"{first.shown} of step {first.step} is in the baseline alone",
        hint="capture the same points in both runs",
    )


def _reaching(manifest: Manifest, record: TensorRecord) -> int:
    """Return the step that reaches the last row of another run's ``record``; else the last one."""
    last = end_of(record) if record.shape else 0
    reached = (
        step.index
        for step in manifest.steps
        for span in step.spans
        if span.session == record.session and span.end >= last
    )
    return next(reached, len(manifest.steps) - 1)


def _prepared(manifest: Manifest, progress: Progress) -> Prepared:
    """Prepare the case of ``manifest`` as it ran, healthy."""
    if "imported" in manifest.case:
        raise IncomparableError(
            "neither bundle says which case was run: there is nothing to run a defect in",
            hint="give a bundle of `swarepro run` as BASELINE",
        )
    case = convert_case(manifest.case, source="the case in the bundle's manifest")
    options = RunOptions(
        device=manifest.backend.device.partition(":")[0],
        route=manifest.backend.route,
        schedule=manifest.backend.schedule,
        ownership=False,
        recv=None if manifest.recv is None else Path(manifest.recv),
        capture=CaptureOptions(level=Level.OP, store="tensor"),
        max_bundle_bytes=_ANY_SIZE,
    )
    if manifest.backend.engine != "paged":
        options = replace(options, route="auto", schedule="auto")
    return prepare(case, options, copies=0, progress=progress)


def _of(
    stages: Sequence[StageEntry],
    records: Sequence[TensorRecord],
    first: Parting,
    *,
    step: int | None = None,
) -> list[TensorRecord]:
    """Return the records of the boundary in question, of all steps or of one."""
    return [
        record
        for record, mark in told_apart(stages, records)
        if (record.name, record.session, mark) == (first.name, first.session, first.mark)
        and step in (None, record.step)
    ]


def _with_positions(records: Sequence[TensorRecord]) -> list[TensorRecord]:
    return [record for record in records if record.row_start is not None]


def _rows(bundle: Bundle, first: Parting, *, step: int) -> Stacked | None:
    records = _with_positions(_of(bundle.manifest.stages, bundle.records, first))
    if not records or any(record.file is None or not record.shape for record in records):
        return None
    for record in records:
        bundle.check(record)
    return _stacked(records, bundle.rows, step=step)


def _stacked(records: Sequence[TensorRecord], read: ReadRows, *, step: int) -> Stacked | None:
    """Return each position's row as ``step`` shows it, else as the first step that does.

    A pool's row is shown again by later steps: what one of them shows may have changed since.
    """
    segments = first_appearances(sorted(records, key=lambda record: record.step != step))
    return stacked(segments, read) if segments else None


def _remainder(
    mine: npt.NDArray[np.float64],
    theirs: npt.NDArray[np.float64],
    baseline: npt.NDArray[np.float64],
) -> float | None:
    with np.errstate(invalid="ignore", over="ignore"):
        left, whole = ((mine - theirs) ** 2).sum(), ((baseline - theirs) ** 2).sum()
    if not (np.isfinite(left) and np.isfinite(whole)) or whole == 0.0:
        return None
    return sqrt(float(left / whole))


def _rank(each: Hypothesis) -> tuple[int, int, float, str]:
    remainder = float("inf") if each.remainder is None else each.remainder
    return _BEST_FIRST.index(each.fit), -(each.equal or 0), remainder, each.fault
