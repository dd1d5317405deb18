"""What a search among known defects answers. No numpy here, so that reports can import it."""

from dataclasses import dataclass
from typing import Literal

from swarepro.points import PointKind

Fit = Literal["exact", "within", "leaves", "earlier", "none", "error"]
"""``exact``: it gives the target's bytes. ``within``: what it leaves is noise. ``leaves``: it acts
there, and a part of the difference stays. ``earlier``: it would show at a boundary where the runs
agree. ``none``: it changes nothing there. ``error``: a run with it ends with an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """One known defect, held against the target at the first boundary where it differs.

    Attributes:
        fault: its name.
        mechanism: of the reports that describe it, or empty.
        summary: what goes wrong.
        fit: how well it fits.
        differing: values of the boundary that differ from the target's; None where it was not run
            so far.
        remainder: what it leaves of the difference: ``norm(hypothesis - target) / norm(baseline -
            target)``; None where that is no number.
        earlier: of ``earlier``, the boundary.
        error: of ``error``, what it ended with.
        equal: boundaries of the whole run that are the target's to the byte; only of those that fit
            exactly at the first.
    """

    fault: str
    mechanism: str
    summary: str
    fit: Fit
    differing: int | None = None
    remainder: float | None = None
    earlier: str | None = None
    error: str | None = None
    equal: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why two runs part, as far as the known defects say.

    Attributes:
        baseline: path of the bundle.
        target: path of the bundle.
        step: of the first boundary that differs.
        session: whose rows differ there.
        name: of that boundary.
        layer: global layer id, or None.
        kind: of that boundary.
        num_values: of the boundary that were compared.
        baseline_differing: of these, how many differ between baseline and target.
        boundaries: of the whole run, as `Hypothesis.equal` counts them.
        hypotheses: best first.
        differences: what the manifests say differs.
    """

    baseline: str
    target: str
    step: int
    session: int
    name: str
    layer: int | None
    kind: PointKind
    num_values: int
    baseline_differing: int
    boundaries: int
    hypotheses: tuple[Hypothesis, ...]
    differences: tuple[str, ...] = ()

    @property
    def best(self) -> tuple[Hypothesis, ...]:
        """Those that fit, and of these the ones that no other fits better than: several = a tie."""
        if not self.hypotheses or self.hypotheses[0].fit not in ("exact", "within"):
            return ()
        first = self.hypotheses[0]
        return tuple(
            each
            for each in self.hypotheses
            if (each.fit, each.equal, each.remainder if each.fit == "within" else None)
            == (first.fit, first.equal, first.remainder if first.fit == "within" else None)
        )
