"""Keeps, while a run goes, the tensors by which its first mismatch may have to be explained."""

from collections.abc import Callable
from dataclasses import dataclass

from swarepro.bundle.schema import Manifest, TensorRecord
from swarepro.capture import Captured
from swarepro.compare.expected import Expected, same_bytes
from swarepro.compare.inputs import Place
from swarepro.compare.reach import Reach, spot_of
from swarepro.compare.steps import At, previous_spans
from swarepro.points import ExecKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """The first boundary that differs.

    Attributes:
        place: of the boundary.
        record: the baseline's.
        tensors: bytes of the boundary and of its captured inputs.
    """

    place: Place
    record: TensorRecord
    tensors: dict[Place, memoryview]

    @property
    def num_bytes(self) -> int:
        """Of the tensors."""
        return sum(data.nbytes for data in self.tensors.values())


class Window:
    """Compares every tensor with a baseline, and keeps its bytes for as long as they are needed.

    A tensor is dropped when its session has passed the last boundary that it may be an input of. So
    at most these are held at a time: of each session of the step, the tensors between two compared
    boundaries (where all points are captured and compared, those of two layers); its slots and
    positions; of each session that goes on, the KV slices and slots that its last step saw, and of
    a prefix that will be taken over, those of the steps that wrote it; and the mismatch itself.
    When the step of the first mismatch has ended, nothing more is kept.

    Args:
        expected: the baseline.
        reach: what is an input of what.
        planned: the manifest of the run: its steps.

    Attributes:
        first: the earliest mismatch so far, in the baseline's order of execution.
        num_bytes: that are held.
        peak_bytes: the most that were held at a time.
    """

    def __init__(self, expected: Expected, reach: Reach, planned: Manifest) -> None:
        self._expected = expected
        self._reach = reach
        self._users: dict[At, list[At]] = {}
        for user, used in previous_spans(planned).items():
            for at in used:
                self._users.setdefault(at, []).append(user)
        self._held: dict[Place, memoryview] = {}
        self._due: dict[At, list[tuple[ExecKey | None, Place]]] = {}
        self._settled = False
        self.first: Mismatch | None = None
        self.num_bytes = 0
        self.peak_bytes = 0

    def see(self, captured: Captured, digest: str, copy: Callable[[], memoryview]) -> None:
        """Compare a tensor; keep a copy of it where it may be needed. See `Witness`."""
        if self._settled:
            return
        place = Place(
            step=captured.step,
            session=captured.session,
            stage=captured.stage,
            point=captured.point.name,
            layer=captured.layer,
        )
        self._drop_before(place)
        record = self._expected.next(
            step=captured.step,
            name=captured.name,
            session=captured.session,
            point=captured.point.name,
            stage=captured.stage,
        )
        self._keep(place, copy)
        if record is None:
            return
        if not same_bytes(record, dtype=captured.dtype, shape=captured.shape, digest=digest):
            self._found(place, record, copy)

    def end_step(self, step: int) -> None:
        """Drop what no later step needs; everything, when the first mismatch is known."""
        self._settled = self.first is not None
        for at in [at for at in self._due if at[0] == step or self._settled]:
            for _, place in self._due.pop(at):
                self._drop(place)

    def _keep(self, place: Place, copy: Callable[[], memoryview]) -> None:
        until = self._last_use(place)
        if until is None:
            return
        data = self._held[place] = copy()
        self._count(data.nbytes)
        self._due.setdefault(until[0], []).append((until[1], place))

    def _last_use(self, place: Place) -> tuple[At, ExecKey | None] | None:
        """Return the step and session that need ``place`` last, and up to which boundary.

        None in place of the boundary: up to the end of the step, whose sessions go side by side.
        """
        here, spot = (place.step, place.session), spot_of(place)
        users, later = self._users.get(here), self._reach.until(spot, later=True)
        if users and later is not None:
            last = max(users)
            is_alone = sum(step == last[0] for step, _ in users) == 1
            return last, later if is_alone else None
        until = self._reach.until(spot, later=False)
        return None if until is None else (here, until)

    def _drop_before(self, place: Place) -> None:
        """Drop what its session needed for boundaries before ``place`` alone."""
        here, now = (place.step, place.session), self._reach.order(spot_of(place))
        left = []
        for until, held in self._due.pop(here, []):
            if until is not None and until < now:
                self._drop(held)
            else:
                left.append((until, held))
        if left:
            self._due[here] = left

    def _drop(self, place: Place) -> None:
        self._count(-self._held.pop(place).nbytes)

    def _found(self, place: Place, record: TensorRecord, copy: Callable[[], memoryview]) -> None:
        """Hold on to a mismatch and its inputs, in the place of one that comes later."""
        if self.first is not None:
            if self.first.record.index < record.index:
                return
            self._count(-self.first.num_bytes)
        tensors = {place: self._held[place] if place in self._held else copy()}
        tensors |= {at: self._held[at] for at in self._reach.inputs(place) if at in self._held}
        self.first = Mismatch(place=place, record=record, tensors=tensors)
        self._count(self.first.num_bytes)

    def _count(self, num_bytes: int) -> None:
        """Count what is held; what the mismatch shares with the rest counts twice."""
        self.num_bytes += num_bytes
        self.peak_bytes = max(self.peak_bytes, self.num_bytes)
