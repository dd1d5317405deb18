"""How far apart two runs may be at a boundary and still be two roundings of one computation.

With m the margin, o and p the floor's spreads of order and precision there, and eps the distance
from 1 to the next value of the coarser dtype:

- Between runs of one engine, device and dtype, the first boundary of a session to differ has equal
  inputs: what differs there is one operation's own rounding. A vector may be off by ``max(m o,
  eps)``: other sums make single values fall to a neighbour. All rows together may be off by ``max(m
  o, eps / 32)``: they do so rarely, one in some hundred, where another formula moves all of them.
- Behind it, what fell to a neighbour is carried on and grows. It stays below what rounding every
  value of every operation gives, which is p: ``max(m o, 2 p, eps)``.
- Between engines, devices or dtypes every operation rounds otherwise: ``max(m o, m p, eps)``.
"""

from dataclasses import dataclass

from swarepro.bundle.dtypes import DTYPES
from swarepro.compare.floor import FloorEntry, Kind

MARGIN = 4.0
"""How far beyond the largest spread of a few legal variants another one may be."""
_INHERITED = 2.0
_RARELY = 1 / 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is still noise: the error of a vector, and the relative L2 of all rows."""

    worst: float
    relative_l2: float


def limits_of(
    entry: FloorEntry, kind: Kind, *, dtypes: tuple[str, str], is_source: bool, margin: float
) -> Limits:
    """Return the limits at a boundary.

    Args:
        entry: the floor there.
        kind: what the runs differ in.
        dtypes: of baseline and target, safetensors' names of floats.
        is_source: nothing before it differs.
        margin: see the formulas above.
    """
    eps = max(2.0 ** -DTYPES[name].mantissa_bits for name in dtypes)
    if kind == "precision":
        return Limits(
            worst=max(margin * max(entry.order, entry.precision), eps),
            relative_l2=max(margin * max(entry.order_l2, entry.precision_l2), eps),
        )
    if is_source:
        return Limits(
            worst=max(margin * entry.order, eps),
            relative_l2=max(margin * entry.order_l2, _RARELY * eps),
        )
    return Limits(
        worst=max(margin * entry.order, _INHERITED * entry.precision, eps),
        relative_l2=max(margin * entry.order_l2, _INHERITED * entry.precision_l2, eps),
    )
