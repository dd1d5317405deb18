"""What a comparison against a noise floor answers. No numpy here, so that reports can import it."""

from dataclasses import dataclass
from enum import StrEnum

from swarepro.points import PointKind


class VerdictClass(StrEnum):
    """What a pair of runs is to each other.

    ``WRONG``: a value lies above the floor, or one of the runs is wrong by itself: its token is not
    the largest of its own logits, or the target reads rows otherwise than it wrote them. ``NOISE``:
    values differ, and all lie within the floor. ``TIE``: every boundary is equal byte for byte, and
    other tokens were chosen. ``INCOMPARABLE``: what differs has no floor, or the baseline is no
    measure.
    """

    IDENTICAL = "IDENTICAL"
    NOISE = "NOISE"
    TIE = "TIE"
    WRONG = "WRONG"
    INCOMPARABLE = "INCOMPARABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One boundary of one session whose bytes differ, over all its rows.

    Attributes:
        step: the baseline's step of the first row above the floor, else of the first row.
        session: whose rows these are.
        name: as users see it.
        point: the declared point.
        layer: global layer id, or None.
        kind: state, value or metadata.
        worst: largest error of a vector, see `swarepro.compare.spread`; infinite where integers
            differ or one side alone is not finite.
        relative_l2: over all rows.
        cosine: of all rows.
        limit: largest error of a vector that is still noise, see `swarepro.compare.limits`; None =
            the floor has no such boundary.
        limit_l2: likewise of the relative L2.
        reread: rows that an earlier step wrote are shown otherwise here, in the target itself.
        reason: why it is wrong, or has no verdict, where no number says so; else None.
        is_source: it is the first of its session to differ: what was captured of its inputs is
            equal.
        positions: of rows with a vector above the floor, ascending; of all that differ, where the
            runs have the same steps and nothing before differs.
        heads: of vectors above the floor, where the point has heads; else empty.
        num_heads: of the point; 0 without heads.
        num_rows: that were compared.
    """

    step: int
    session: int
    name: str
    point: str
    layer: int | None
    kind: PointKind
    worst: float
    relative_l2: float | None
    cosine: float | None
    limit: float | None
    limit_l2: float | None
    is_source: bool = False
    reread: bool = False
    reason: str | None = None
    positions: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    num_heads: int = 0
    num_rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """The first token of a session that the runs chose otherwise; later rows have other inputs.

    Attributes:
        position: of the row whose logits chose it.
        baseline: its token.
        target: its token.
        baseline_gap: logit of the baseline's token less that of the target's, in the baseline;
            None where the logits were not stored.
        target_gap: the same difference in the target: below 0 where the logits chose its token.
        apart: largest difference of a logit between the runs at that row.
        equal: whether the logits are equal byte for byte; None = nobody knows.
    """

    session: int
    position: int
    baseline: int
    target: int
    baseline_gap: float | None
    target_gap: float | None
    apart: float | None
    equal: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The row of logits at which the baseline's most probable token moves most.

    Attributes:
        session: of the row.
        position: of the row.
        token: most probable in the baseline.
        moved: its log-probability in the target less that in the baseline, in nat.
        kl: Kullback-Leibler divergence of the target's distribution from the baseline's, in nat.
    """

    session: int
    position: int
    token: int
    moved: float
    kl: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGrowth:
    """The residual stream behind one layer.

    Attributes:
        layer: global layer id.
        relative_l2: of the stream.
        cosine: of the stream.
        added: relative L2 of what the layer added (out less in) to it: large at a source, where an
            amplifier only carries on what came in. None where the stream before it is not there.
        floor_l2: of the stream, from legal variants; None without.
    """

    layer: int
    relative_l2: float
    cosine: float | None
    added: float | None
    floor_l2: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """Two runs against a noise floor.

    Attributes:
        baseline: path of the bundle.
        target: path of the bundle.
        floor: path of the floor.
        floor_kind: what the runs may differ in: ``order`` between runs of one engine, device and
            dtype, else ``precision``, which takes in both.
        margin: how far beyond the spread of the floor's variants a run may be.
        verdict: the class.
        reason: why it is INCOMPARABLE; else None.
        compared: boundaries of a session that were compared.
        identical: of these, byte for byte.
        first: the earliest above the floor, in execution order.
        patterns: what its rows and heads have in common, in sentences without a full stop.
        above: all of them, in execution order.
        within: those that differ within it, in execution order.
        unjudged: those that differ and have no floor, or cannot be measured, and those of
            ``unsteady``.
        unjudged_before: how many of these come before ``first``: it may be no source.
        flips: by session.
        drift: of the predictions; None where no row of logits was stored in both runs.
        growth: by layer; empty where the residual stream was not captured.
        unsteady: names of boundaries where the baseline itself shows rows otherwise than it wrote
            them: it is no measure.
        differences: what the manifests say differs.
        only_baseline: boundaries with rows that only the baseline has.
        only_target: likewise.
        skipped: declared points left out: their rows are no positions, or they are an engine's own.
    """

    baseline: str
    target: str
    floor: str
    floor_kind: str
    margin: float
    verdict: VerdictClass
    reason: str | None
    compared: int
    identical: int
    first: Measured | None
    patterns: tuple[str, ...]
    above: tuple[Measured, ...]
    within: tuple[Measured, ...]
    unjudged: tuple[Measured, ...]
    unjudged_before: int
    flips: tuple[Flip, ...]
    drift: Drift | None
    growth: tuple[LayerGrowth, ...]
    unsteady: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    only_baseline: tuple[str, ...] = ()
    only_target: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
