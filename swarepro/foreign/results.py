"""What an import found, for a report: plain data, neither torch nor numpy."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOutcome:
    """What one rule of the map gave.

    Attributes:
        point: that it gives.
        patterns: of its names.
        boundaries: how many it gave.
        layers: of the model, ascending; empty where the point has none.
        steps: the engine's numbers, ascending.
        ranks: how many of them each boundary was put together from.
        missing: what other rules have and this one lacks, in words; empty = nothing.
    """

    point: str
    patterns: tuple[str, ...]
    boundaries: int
    layers: tuple[int, ...]
    steps: tuple[int, ...]
    ranks: int
    missing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanOutcome:
    """One span of one step.

    Attributes:
        step: of the bundle.
        number: of the engine.
        phase: ``prefill`` or ``decode``.
        session: whose rows.
        start: first position.
        end: one past the last.
    """

    step: int
    number: int
    phase: str
    session: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """What became of a dump.

    Attributes:
        engine: that computed it.
        source: the dump.
        num_found: tensors in it.
        rules: one for each rule of the map, in its order.
        spans: what ran.
        num_records: of the bundle.
        unmatched: files, and keys in them, that no rule takes.
        unmatched_names: their names, each with how many there are; numbers are written N.
        skipped: how many names the map leaves out on purpose.
        ambiguous: boundaries that two tensors claim.
        incomplete: boundaries that lack a source or a rank.
        refusals: why the dump cannot be right.
        allowed: findings that the map allows.
        notes: what was checked, and what could not be.
        num_bytes: of all tensors.
        bundle: that was written, or None.
    """

    engine: str
    source: Path
    num_found: int
    rules: tuple[RuleOutcome, ...]
    spans: tuple[SpanOutcome, ...]
    num_records: int
    unmatched: tuple[str, ...]
    unmatched_names: tuple[tuple[str, int], ...]
    skipped: int
    ambiguous: tuple[str, ...]
    incomplete: tuple[str, ...]
    refusals: tuple[str, ...]
    allowed: tuple[str, ...]
    notes: tuple[str, ...]
    num_bytes: int
    bundle: Path | None

    @property
    def problems(self) -> tuple[str, ...]:
        """Every reason not to import it."""
        return (
            *(f"ambiguous: {what}" for what in self.ambiguous),
            *(f"incomplete: {what}" for what in self.incomplete),
            *self.refusals,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """What an export wrote.

    Attributes:
        directory: that holds it.
        files: of tensors.
        num_tensors: in them.
        left_out: records of which the bundle has a digest only.
        num_bytes: of all files.
    """

    directory: Path
    files: tuple[Path, ...]
    num_tensors: int
    left_out: int
    num_bytes: int
