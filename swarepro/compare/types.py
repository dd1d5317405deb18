"""What comparing answers. No numpy and no torch here, so that reports can import it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from swarepro.bundle.schema import TensorRecord
from swarepro.points import PointKind

Origin = Literal["source", "inherited", "unknown"]


class Verdict(StrEnum):
    """Of one boundary or of a pair of runs."""

    IDENTICAL = "IDENTICAL"
    WITHIN_TOLERANCE = "WITHIN_TOLERANCE"
    DIVERGED = "DIVERGED"
    INCOMPARABLE = "INCOMPARABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """When values count as equal. ``None`` in place of a `Tolerance` means bitwise.

    An element passes when ``abs(t - b) <= atol + rtol * abs(b)``, or when it is at most ``max_ulp``
    units in the last place of the tensors' dtype away. NaN matches NaN, an infinity itself.
    Integers (token ids, slots, routes) always have to be equal.
    """

    atol: float = 0.0
    rtol: float = 0.0
    max_ulp: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorDiff:
    """Numbers about one pair of tensors of the same shape. Baseline b, target t.

    Attributes:
        num_elements: of each.
        num_mismatched: elements whose bytes differ (or, under a tolerance, exceed it).
        first_mismatch: index of the first such element, row-major; empty for a scalar.
        max_ulp: largest distance in units in the last place over finite pairs; None for non-floats.
        max_abs: largest ``abs(t - b)`` over finite pairs.
        relative_l2: ``norm(t - b) / norm(b)`` over finite pairs in float64; None when norm(b) is 0.
        cosine: of the flattened finite pairs; None when one norm is 0.
        nonfinite_baseline: count of NaN and infinities.
        nonfinite_target: count of NaN and infinities.
        num_rows: rows (dimension 0).
        rows: indices of rows that differ, ascending.
        positions: logical positions of these rows; empty where rows are not positions.
        heads: indices of heads that differ, where the point has a head dimension; else empty. In a
            fused projection heads of q come first, then of k, then of v.
        num_heads: of the head dimension; 0 without one.
    """

    num_elements: int
    num_mismatched: int
    first_mismatch: tuple[int, ...]
    max_ulp: int | None
    max_abs: float
    relative_l2: float | None
    cosine: float | None
    nonfinite_baseline: int
    nonfinite_target: int
    num_rows: int
    rows: tuple[int, ...]
    positions: tuple[int, ...]
    heads: tuple[int, ...]
    num_heads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundaryDiff:
    """One aligned boundary.

    Attributes:
        step: the baseline's step; for position alignment, that of the first differing row.
        session: whose rows these are.
        name: as users see it, with ``#N`` for a later one of the session in the step.
        origin: ``source`` when all inputs were judged and are equal on both sides (under a
            tolerance: none diverges), ``inherited`` when a captured one differs, directly or
            through inputs that were not captured, ``unknown`` when no captured one differs, but
            not all were captured and judged; None where it has not DIVERGED.
        reason: why it is INCOMPARABLE, or why it diverges without numbers (another shape or dtype);
            else None.
        numbers: None where bytes are equal, where tensors were not stored, or were not opened.
        reread_at: the target's step that shows rows otherwise than an earlier one wrote them, which
            is why it DIVERGED, by position; ``step`` is where the baseline shows them. Else None.
    """

    step: int
    stage: int
    name: str
    layer: int | None
    kind: PointKind
    verdict: Verdict
    origin: Origin | None = None
    reason: str | None = None
    numbers: TensorDiff | None = None
    session: int = 0
    reread_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSided:
    """A boundary, or rows of one, that only one side captured.

    Attributes:
        step: that side's; of the earliest row.
        positions: of the rows, half-open; None = the whole boundary (alignment by step).
        session: whose boundary or rows.
    """

    step: int
    name: str
    positions: tuple[int, int] | None = None
    session: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The comparison of two runs.

    Attributes:
        baseline: path of the bundle.
        target: path of the bundle.
        align: how boundaries were matched.
        tolerance: None = bitwise.
        verdict: of the pair.
        compared: aligned boundaries that were judged.
        tensors_opened: tensors whose bytes were read; the others were judged by digest.
        boundaries: every boundary that is not IDENTICAL, in execution order.
        last_identical: the last boundary before ``first`` that is identical, or None.
        first: earliest diverging boundary of any kind.
        first_state: earliest diverging state boundary.
        first_value: earliest diverging value boundary.
        exact: ``first`` is exactly here; False = here or before, because something before it is on
            one side only or could not be judged, or an input of it was not captured. Without a
            ``first``: nothing is on one side only.
        exact_state: likewise of ``first_state``, among state boundaries.
        exact_value: likewise of ``first_value``, among value boundaries.
        only_baseline: boundaries, or rows of them, of the baseline alone.
        only_target: likewise of the target alone.
        tokens_differ: the generated tokens of a session differ (where both sides generated any).
        skipped: declared points that were not judged because they differ by intent, or because
            this comparison cannot align them.
        patterns: what the rows that are off have in common, of ``first_value`` or else of
            ``first``, in sentences without a full stop.
        differences: what the manifests say differs, e.g. ``faults (none against one-row)``.
        verified: every stored byte was first checked against its record's digest.
        several_sessions: one of the runs has several, so that a boundary is named with its session.
        last_step: by step, the last one that both runs have, where one of them goes further: what
            lies beyond is neither compared nor one-sided; else None.
        rereads: by position, slices of the pools, on both sides, that were read only to hold later
            readings of a row against its first write.
        unsteady: names of boundaries where the baseline itself shows rows otherwise than it wrote
            them: it is no measure.
    """

    baseline: str
    target: str
    align: Literal["step", "position"]
    tolerance: Tolerance | None
    verdict: Verdict
    compared: int
    tensors_opened: int
    boundaries: tuple[BoundaryDiff, ...]
    last_identical: BoundaryDiff | None
    first: BoundaryDiff | None
    first_state: BoundaryDiff | None
    first_value: BoundaryDiff | None
    exact: bool
    exact_state: bool
    exact_value: bool
    only_baseline: tuple[OneSided, ...]
    only_target: tuple[OneSided, ...]
    tokens_differ: bool
    skipped: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    verified: bool = False
    several_sessions: bool = False
    last_step: int | None = None
    rereads: int = 0
    unsteady: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """How a run compares with the one that it was run against.

    Attributes:
        divergence: of the baseline and of what the run wrote.
        steps_run: steps that ran.
        steps_planned: of the run, had it not stopped.
        steps_baseline: of the baseline.
        stored: records whose tensors the run stored: the first mismatch and its captured inputs.
        in_baseline: whether the baseline stores its tensor of the first mismatch.
        peak_bytes: of tensors, the most that were held at a time.
    """

    divergence: Divergence
    steps_run: int
    steps_planned: int
    steps_baseline: int
    stored: tuple[TensorRecord, ...]
    in_baseline: bool
    peak_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundaryClasses:
    """One boundary over N repeats.

    Attributes:
        classes: sizes of the groups of equal digests, largest first, e.g. ``(3, 2, 1)``.
        modal: the most frequent digest; of the earliest repeat on a tie.
        deviating: repeats (from 0) whose digest is not the modal one.
        session: whose rows these are.
    """

    step: int
    stage: int
    name: str
    layer: int | None
    kind: PointKind
    classes: tuple[int, ...]
    modal: str
    deviating: tuple[int, ...]
    session: int = 0

    @property
    def distinct(self) -> int:
        """Number of different digests."""
        return len(self.classes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Determinism:
    """What varies between repeats of one run.

    Attributes:
        repeats: N.
        points: every boundary, in execution order.
        earliest_varying: first of them with more than one digest.
        first_value_varying: first *value* boundary with more than one digest.
        outputs_vary: steps in which the last value boundary of a session varies.
        tokens: generated tokens of each repeat, all sessions in order.
        modal_repeat: the first repeat that shows the modal digest at every boundary, else the one
            that deviates least.
        deviating: repeats that deviate anywhere, ascending.
        rate_upper_bound: with nothing varying, the 95 % upper bound on the rate of divergence that
            N repeats leave open: ``1 - 0.05 ** (1 / N)``; None when something varies.
        only_some: boundaries that some repeats lack; non-empty makes the repeats incomparable.
        several_sessions: a boundary is named with its session, because there are several.
    """

    repeats: int
    points: tuple[BoundaryClasses, ...]
    earliest_varying: BoundaryClasses | None
    first_value_varying: BoundaryClasses | None
    outputs_vary: tuple[int, ...]
    tokens: tuple[tuple[int, ...], ...]
    modal_repeat: int
    deviating: tuple[int, ...]
    rate_upper_bound: float | None
    only_some: tuple[OneSided, ...]
    several_sessions: bool = False

    @property
    def verdict(self) -> Literal["DETERMINISTIC", "NONDETERMINISTIC"]:
        """NONDETERMINISTIC when any boundary or any token varies."""
        varies = self.earliest_varying is not None or len(set(self.tokens)) > 1
        return "NONDETERMINISTIC" if varies else "DETERMINISTIC"
