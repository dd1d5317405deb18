"""Turns live tensors into records: one recorder per run, one tap per stage."""

from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, Protocol

import torch

from swarepro import points
from swarepro.bundle.schema import CaptureEntry, TensorRecord
from swarepro.capture.digester import Digester, HostDigester, raw_bytes
from swarepro.points import CapturePoint, Level, Scope

_DTYPES = {
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.bool: "BOOL",
}
_RANK = {Level.OFF: 0, Level.BOUNDARY: 1, Level.OP: 2}


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
class _Pending:
    """A captured tensor whose digest is not known yet."""

    point: CapturePoint
    name: str
    stage: int
    layer: int | None
    occurrence: int
    dtype: str
    shape: tuple[int, ...]
    row_start: int | None
    data: memoryview | None


class Recorder:
    """Captures what its `CaptureEntry` asks for, in the order in which taps are called.

    Args:
        capture: what is captured.
        sink: takes the records of a step when it ends.
        digester: digests tensors where they are.
    """

    def __init__(
        self, capture: CaptureEntry, sink: RecordSink, digester: Digester | None = None
    ) -> None:
        self._capture = capture
        self._sink = sink
        self._digester = HostDigester() if digester is None else digester
        self._step = 0
        self._session = 0
        self._index = 0
        self._seen: Counter[str] = Counter()
        self._pending: list[_Pending] = []
        self._in_step = True

    def begin_step(self, step: int, session: int) -> None:
        """The following tensors belong to ``step`` of ``session``."""
        self._step, self._session = step, session
        self._seen.clear()
        self._in_step = not self._capture.steps or step in self._capture.steps

    def end_step(self) -> None:
        """All tensors of the current step were captured: hand their records on."""
        digests = self._digester.collect()
        for pending, digest in zip(self._pending, digests, strict=True):
            record = TensorRecord(
                index=self._index,
                step=self._step,
                stage=pending.stage,
                name=pending.name,
                point=pending.point.name,
                layer=pending.layer,
                occurrence=pending.occurrence,
                kind=pending.point.kind,
                dims=pending.point.dims,
                dtype=pending.dtype,
                shape=pending.shape,
                digest=digest,
                session=self._session,
                row_start=pending.row_start,
                file=None,
                algorithm=self._digester.algorithm,
            )
            self._sink.add(record, pending.data)
            self._index += 1
        self._pending = []
        self._sink.end_step()

    def tap(self, stage: int, *, is_last: bool) -> "StageTap":
        """Return the tap of stage ``stage``; ``is_last``: it emits the chain's last boundary."""
        return StageTap(self, self._capture, stage, is_last=is_last)

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
        row_start: int | None,
        store: bool,
    ) -> None:
        """Capture one tensor: digest it, and copy its bytes if they are stored."""
        occurrence = self._seen[name]
        self._seen[name] = occurrence + 1
        self._digester.submit(tensor)
        self._pending.append(
            _Pending(
                point,
                name,
                stage,
                layer,
                occurrence,
                _DTYPES[tensor.dtype],
                tuple(tensor.shape),
                row_start,
                memoryview(bytes(raw_bytes(tensor))) if store else None,
            )
        )


class StageTap:
    """The tap of one stage; implements `swarepro.runtime.parts.Tap`."""

    def __init__(
        self, recorder: Recorder, capture: CaptureEntry, stage: int, *, is_last: bool
    ) -> None:
        self._recorder = recorder
        self._capture = capture
        self._stage = stage
        self._is_last = is_last
        self._plans: dict[
            tuple[str, int | None], tuple[str, Literal["digest", "tensor"]] | None
        ] = {}

    def wants(self, point: CapturePoint, layer: int | None = None) -> bool:
        """Return whether ``point`` is captured at ``layer`` in the current step."""
        return self._recorder.captures_this_step and self._plan(point, layer) is not None

    def __call__(
        self,
        point: CapturePoint,
        tensor: torch.Tensor,
        layer: int | None = None,
        *,
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
            row_start=row_start,
            store=store == "tensor",
        )

    def _plan(
        self, point: CapturePoint, layer: int | None
    ) -> tuple[str, Literal["digest", "tensor"]] | None:
        key = (point.name, layer)
        if key not in self._plans:
            self._plans[key] = self._decide(point, layer)
        return self._plans[key]

    def _decide(
        self, point: CapturePoint, layer: int | None
    ) -> tuple[str, Literal["digest", "tensor"]] | None:
        name = point.concrete(layer)
        store = captured(self._capture, point, layer, last_stage=self._is_last)
        return None if store is None else (name, store)


def captured(
    capture: CaptureEntry, point: CapturePoint, layer: int | None, *, last_stage: bool
) -> Literal["digest", "tensor"] | None:
    """Return how ``point`` at ``layer`` is kept, or None when it is not captured.

    At level ``off`` only the last boundary of the chain is kept, as a digest.
    """
    if capture.level is Level.OFF:
        is_last_boundary = last_stage and point in (points.LOGITS, points.BOUNDARY_SEND_HIDDEN)
        return "digest" if is_last_boundary else None
    if _RANK[point.level] > _RANK[capture.level]:
        return None
    if point.scope is Scope.LAYER and capture.layers and layer not in capture.layers:
        return None
    name = point.concrete(layer)
    if not any(fnmatchcase(name, glob) for glob in capture.points):
        return None
    return capture.store
