"""Is it wrong, or is it noise: a floor of legal variants, and two runs against it."""

from pathlib import Path
from typing import TYPE_CHECKING

from swarepro.case import CaseSpec
from swarepro.options import Progress, RunOptions, no_progress

if TYPE_CHECKING:
    from swarepro.compare.assessment import Assessment
    from swarepro.compare.explanation import Explanation
    from swarepro.compare.floor import Floor

_DEFAULT_OPTIONS = RunOptions()


def calibrate_case(
    case: CaseSpec,
    *,
    out: Path,
    options: RunOptions = _DEFAULT_OPTIONS,
    progress: Progress = no_progress,
) -> "Floor":
    """Run ``case`` beside its legal variants and write how far they are apart.

    Args:
        case: what to run.
        out: file of the floor; it must not exist.
        options: how to run it; faults are refused.
        progress: told of every variant.

    Raises:
        SwareproError: nothing is left behind at ``out``.
    """
    from swarepro.runs.calibrate import calibrate_case as calibrate

    return calibrate(case, options, out=out, progress=progress)


def assess_runs(
    baseline: Path, target: Path, *, floor: Path, margin: float | None = None
) -> "Assessment":
    """Compare two bundles against the floor of a file, see `swarepro.compare.assess`.

    Args:
        baseline: bundle of the run that counts as right.
        target: bundle of the other.
        floor: that `calibrate_case` wrote, of the same model.
        margin: how far beyond the floor's variants a run may be; None = 4.

    Raises:
        BundleError: a bundle or the floor cannot be believed.
        IncomparableError: nothing can be judged.
    """
    from swarepro.bundle.read import open_bundle
    from swarepro.compare.assess import assess_bundles
    from swarepro.compare.floor import read_floor
    from swarepro.compare.limits import MARGIN

    return assess_bundles(
        open_bundle(baseline),
        open_bundle(target),
        read_floor(floor),
        path=floor,
        margin=MARGIN if margin is None else margin,
    )


def explain_runs(
    baseline: Path,
    target: Path,
    *,
    floor: Path | None = None,
    progress: Progress = no_progress,
) -> "Explanation":
    """Say which known defect gives what ``target`` has at the first boundary where the runs part.

    The case in the target's manifest (the baseline's, where another engine wrote the target) is run
    once for every fault, as far as that boundary. What the target's manifest says of faults is not
    looked at.

    Args:
        baseline: bundle of the run that counts as right.
        target: bundle of the other.
        floor: by which the first boundary is found, and what is left counts as noise; needed where
            the runs cannot agree to the byte.
        progress: told of every fault.

    Raises:
        IncomparableError: the runs are of other models or prompts, nothing differs, or a floor is
            needed.
        SwareproError: a bundle cannot be believed, or its model is not there.
    """
    from swarepro.runs.explain import explain_bundles

    return explain_bundles(baseline, target, floor=floor, progress=progress)
