"""Whether boundaries depend on what memory held that nobody wrote."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from swarepro import points
from swarepro.bundle.schema import TensorRecord
from swarepro.errors import IncomparableError
from swarepro.points import PointKind

LEFT_OUT = (points.KV_SLICE_PRE_WRITE.name,)
"""Holds the rows that the step is about to write: they are the fill, rightly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FillDependence:
    """A boundary whose bytes depend on what memory held that nobody wrote."""

    step: int
    stage: int
    session: int
    name: str
    kind: PointKind


FillVerdict = Literal["INDEPENDENT", "MASKED_LANE", "UNWRITTEN_READ"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FillProbe:
    """What three runs with three fills showed.

    Attributes:
        case: its name.
        compared: boundaries of each run.
        by_large: those that differ between zeros and a large finite value, in execution order.
        by_nan: those that differ between zeros and NaN, likewise.
        left_out: captured points that were not compared.
    """

    case: str
    compared: int
    by_large: tuple[FillDependence, ...]
    by_nan: tuple[FillDependence, ...]
    left_out: tuple[str, ...]

    @property
    def verdict(self) -> FillVerdict:
        """What the dependence is.

        A large finite value that shows was read and used. NaN alone shows also where it was only
        multiplied by zero: 0 * NaN is NaN.
        """
        if self.by_large:
            return "UNWRITTEN_READ"
        return "MASKED_LANE" if self.by_nan else "INDEPENDENT"

    @property
    def first_masked(self) -> FillDependence | None:
        """The first boundary that depends on NaN, if a masked lane accounts for it, else None.

        It may lie before `first`, which then shows memory that was read.
        """
        first = next(iter(self.by_nan), None)
        return None if first in self.by_large else first

    @property
    def first(self) -> FillDependence | None:
        """The first boundary that shows the verdict."""
        return next(iter(self.by_large or self.by_nan), None)


def compare_fills(case: str, runs: Mapping[str, Sequence[TensorRecord]]) -> FillProbe:
    """Compare the runs ``zero``, ``large`` and ``nan`` of one plan, byte by byte.

    Raises:
        IncomparableError: nothing differs, and no value and no pool was captured that could have.
    """
    kept = {
        fill: [record for record in records if record.point not in LEFT_OUT]
        for fill, records in runs.items()
    }
    seen = {record.point for record in runs["zero"]}
    found = FillProbe(
        case=case,
        compared=len(kept["zero"]),
        by_large=_differing(kept["zero"], kept["large"]),
        by_nan=_differing(kept["zero"], kept["nan"]),
        left_out=tuple(name for name in LEFT_OUT if name in seen),
    )
    if found.first is None and all(one.kind is PointKind.METADATA for one in kept["zero"]):
        raise IncomparableError(
            f"nothing that could show the fill was captured: {_in_order(seen) or 'no boundary'}",
            hint="capture values or pools after a store, too: --points '*'",
        )
    return found


def _in_order(seen: Collection[str]) -> str:
    return ", ".join(point.name for point in points.ALL if point.name in seen)


def _differing(
    baseline: Sequence[TensorRecord], target: Sequence[TensorRecord]
) -> tuple[FillDependence, ...]:
    """Return what differs; all runs have the same plan, so their records stand in one order."""
    return tuple(
        FillDependence(
            step=one.step, stage=one.stage, session=one.session, name=one.name, kind=one.kind
        )
        for one, other in zip(baseline, target, strict=True)
        if one.digest != other.digest
    )
