"""What a fault is: a known defect, as a wrapper of exactly one part."""

from dataclasses import dataclass
from enum import StrEnum

from swarepro.errors import UsageError
from swarepro.registry import Registry
from swarepro.runtime.parts import PartWrapper


class Effect(StrEnum):
    """What a fault claims to do to value boundaries; the diff of its cases checks the claim."""

    IDENTICAL = "identical"
    ROUNDING = "rounding"
    DIVERGES = "diverges"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A defect that can be injected.

    Attributes:
        name: as in ``--fault NAME``.
        mechanism: of the reports that describe it, e.g. ``A1``, see docs/detection.md; or empty.
        summary: one sentence: what goes wrong.
        part: the field of `swarepro.runtime.parts.StageParts` that it wraps.
        effect: on value boundaries, where its case injects it.
        wrap: wraps the part of one stage.
    """

    name: str
    mechanism: str
    summary: str
    part: str
    effect: Effect
    wrap: PartWrapper


FAULTS: Registry[Fault] = Registry("fault", error=UsageError)


def register(
    name: str,
    mechanism: str,
    summary: str,
    *,
    part: str,
    effect: Effect,
    wrap: PartWrapper,
) -> None:
    """Add a fault to `FAULTS`."""
    FAULTS.register(
        name,
        Fault(name=name, mechanism=mechanism, summary=summary, part=part, effect=effect, wrap=wrap),
    )
