"""Turns live tensors into records: one recorder per run, one tap per stage."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import torch

from swarepro import points
from swarepro.bundle.captured import captured
from swarepro.bundle.schema import CaptureEntry, TensorRecord
from swarepro.capture.digester import Digester, HostDigester, raw_bytes
from swarepro.points import CapturePoint

_DTYPES = {
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.bool: "BOOL",
}
_Plan = tuple[str, Literal["digest", "tensor"]]


class RecordSink(Protocol):
    """Takes records in execution order."""

    def add(self, record: TensorRecord, data: memoryview | None) -> None:
        """Take one record, with its raw bytes when they are to be stored."""
        ...

    def end_step(self) -> None:
        """All records of the current step were added."""
        ...


@dataclass(slots=True)
class MemorySink:
    """Keeps records in memory; stores no tensors."""

    records: list[TensorRecord]

    def add(self, record: TensorRecord, data: memoryview | None) -> None:
        """Keep the record."""
        self.records.append(record)

    def end_step(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Captured:
    """What is known of a captured tensor beside its bytes; see `TensorRecord`."""

    point: CapturePoint
    name: str
    step: int
    stage: int
    layer: int | None
    session: int
    dtype: str
    shape: tuple[int, ...]
    row_start: int | None


class Witness(Protocol):
    """Sees every tensor when it is captured, with its digest."""

    def see(self, captured: Captured, digest: str, copy: Callable[[], memoryview]) -> None:
        """Take note of a tensor; ``copy`` returns a copy of its bytes, until `see` returns."""
        ...


@dataclass(frozen=True, slots=True)
class _Pending:
    """A captured tensor whose digest may not be known yet."""

    captured: Captured
    data: memoryview | None
    digest: str | None


class Recorder:
    """Captures what its `CaptureEntry` asks for, in the order in which taps are called.

    Args:
        capture: what is captured.
        sink: takes the records of a step when it ends.
        digester: digests tensors where they are.
        witness: sees them as they are captured; then a device is waited for at each of them.

    Attributes:
        capture: what is captured; it may change between two steps.
    """

    def __init__(
        self,
        capture: CaptureEntry,
        sink: RecordSink,
        digester: Digester | None = None,
        *,
        witness: Witness | None = None,
    ) -> None:
        self.capture = capture
        self._witness = witness
        self._digester = HostDigester() if digester is None else digester
        self._step = 0
        self._pending: list[_Pending] = []
        self._in_step = True
        self.give_to(sink)

    def give_to(self, sink: RecordSink) -> None:
        """Give ``sink`` the records of the steps that follow, numbered from 0."""
        self._sink = sink
        self._index = 0

    def begin_step(self, step: int) -> None:
        """The following tensors belong to ``step``."""
        self._step = step
        self._in_step = not self.capture.steps or step in self.capture.steps

    def end_step(self) -> None:
        """All tensors of the current step were captured: hand their records on.

        A batch may compute its spans in any order; records come in the order of the declared
        points, and at one point in the order of the spans.
        """
        late = iter(self._digester.collect())
        seen: Counter[str] = Counter()
        digests = [next(late) if each.digest is None else each.digest for each in self._pending]
        for pending, digest in sorted(zip(self._pending, digests, strict=True), key=_place):
            captured = pending.captured
            record = TensorRecord(
                index=self._index,
                step=captured.step,
                stage=captured.stage,
                name=captured.name,
                point=captured.point.name,
                layer=captured.layer,
                occurrence=seen[captured.name],
                kind=captured.point.kind,
                dims=captured.point.dims,
                dtype=captured.dtype,
                shape=captured.shape,
                digest=digest,
                session=captured.session,
                row_start=captured.row_start,
                file=None,
                algorithm=self._digester.algorithm,
            )
            seen[captured.name] += 1
            self._sink.add(record, pending.data)
            self._index += 1
        self._pending = []
        self._sink.end_step()

    def tap(self, stage: int, *, is_last: bool) -> "StageTap":
        """Return the tap of stage ``stage``; ``is_last``: it emits the chain's last boundary."""
        return StageTap(self, stage, is_last=is_last)

    @property
    def captures_this_step(self) -> bool:
        """Whether the current step passes the step filter."""
        return self._in_step

    def add(
        self,
        point: CapturePoint,
        tensor: torch.Tensor,
        *,
        name: str,
        stage: int,
        layer: int | None,
        session: int,
        row_start: int | None,
        store: bool,
    ) -> None:
        """Capture one tensor: digest it, and copy its bytes if they are stored."""
        captured = Captured(
            point,
            name,
            self._step,
            stage,
            layer,
            session,
            _DTYPES[tensor.dtype],
            tuple(tensor.shape),
            row_start,
        )
        self._digester.submit(tensor)
        digest = None
        if self._witness is not None:
            (digest,) = self._digester.collect()
            self._witness.see(captured, digest, lambda: _copied(tensor))
        data = _copied(tensor) if store else None
        self._pending.append(_Pending(captured, data, digest))


def _copied(tensor: torch.Tensor) -> memoryview:
    return memoryview(bytes(raw_bytes(tensor)))


def _place(pending: tuple[_Pending, str]) -> points.ExecKey:
    captured = pending[0].captured
    return points.exec_key(
        captured.point,
        step=captured.step,
        stage=captured.stage,
        layer=captured.layer,
        occurrence=0,
    )


class StageTap:
    """The tap of one stage; implements `swarepro.runtime.parts.Tap`."""

    def __init__(self, recorder: Recorder, stage: int, *, is_last: bool) -> None:
        self._recorder = recorder
        self._stage = stage
        self._is_last = is_last
        self._planned_for = recorder.capture
        self._plans: dict[tuple[str, int | None], _Plan | None] = {}

    def wants(self, point: CapturePoint, layer: int | None = None) -> bool:
        """Return whether ``point`` is captured at ``layer`` in the current step."""
        return self._recorder.captures_this_step and self._plan(point, layer) is not None

    def __call__(
        self,
        point: CapturePoint,
        tensor: torch.Tensor,
        layer: int | None = None,
        *,
        session: int,
        row_start: int | None = None,
    ) -> None:
        """Capture ``tensor`` if its point is wanted."""
        if not self._recorder.captures_this_step:
            return
        plan = self._plan(point, layer)
        if plan is None:
            return
        name, store = plan
        self._recorder.add(
            point,
            tensor,
            name=name,
            stage=self._stage,
            layer=layer,
            session=session,
            row_start=row_start,
            store=store == "tensor",
        )

    def _plan(self, point: CapturePoint, layer: int | None) -> _Plan | None:
        if self._planned_for is not self._recorder.capture:
            self._planned_for = self._recorder.capture
            self._plans.clear()
        key = (point.name, layer)
        if key not in self._plans:
            self._plans[key] = self._decide(point, layer)
        return self._plans[key]

    def _decide(self, point: CapturePoint, layer: int | None) -> _Plan | None:
        name = point.concrete(layer)
        store = captured(self._recorder.capture, point, layer, last_stage=self._is_last)
        return None if store is None else (name, store)
