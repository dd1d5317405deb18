"""Judges the arms of a case against a noise floor that is measured on its healthy arm."""

from collections.abc import Iterator
from pathlib import Path

from msgspec import structs

from swarepro.bundle.read import open_bundle
from swarepro.case import CaseSpec
from swarepro.compare.assess import assess_bundles
from swarepro.compare.assessment import Flip
from swarepro.expect import ExpectFloor, PointRef
from swarepro.options import Progress, RunOptions
from swarepro.runs.calibrate import calibrate_case
from swarepro.runs.results import CheckResult


def check_floor(
    case: CaseSpec, expect: ExpectFloor, root: Path, *, progress: Progress
) -> Iterator[CheckResult]:
    """Compare the bundles ``healthy`` and ``faulty`` in ``root`` against the floor of ``case``."""
    healthy = structs.replace(case, fault=None, expect=type(case.expect)())
    path = root / "floor.json"
    floor = calibrate_case(healthy, RunOptions(), out=path, progress=progress)
    arms = open_bundle(root / "healthy"), open_bundle(root / "faulty")
    found = assess_bundles(*arms, floor, path=path)
    yield _check("verdict", expect.verdict, found.verdict, expect.verdict == found.verdict)
    if expect.verdict == "WRONG":
        wanted = "none" if expect.first is None else _point(expect.first)
        first = "none" if found.first is None else f"step {found.first.step} {found.first.name}"
        yield _check("first", wanted, first, wanted == first)
        return
    yield _check(
        "flips",
        "none" if expect.gap_at_most is None else f"at gaps of at most {expect.gap_at_most:g}",
        ", ".join(map(_flip, found.flips)) or "none",
        all(_is_near(flip, expect.gap_at_most) for flip in found.flips),
    )
    if expect.drift_at_most is not None:
        moved = None if found.drift is None else abs(found.drift.moved)
        yield _check(
            "drift",
            f"above 0, at most {expect.drift_at_most:g} nat",
            "no logits" if moved is None else f"{moved:.3g} nat",
            moved is not None and 0 < moved <= expect.drift_at_most,
        )


def _check(what: str, wanted: str, found: str, ok: bool) -> CheckResult:
    return CheckResult(arm="diff", what=f"floor {what}", wanted=wanted, found=found, ok=ok)


def _point(ref: PointRef) -> str:
    return f"step {ref.step} {ref.name}"


def _flip(flip: Flip) -> str:
    gap = "unknown" if flip.baseline_gap is None else f"{flip.baseline_gap:.3g}"
    return f"position {flip.position} of session {flip.session} at a gap of {gap}"


def _is_near(flip: Flip, gap: float | None) -> bool:
    """Whether neither run's logits of the two tokens are further apart than ``gap``."""
    gaps = flip.baseline_gap, flip.target_gap
    return gap is not None and all(each is not None and abs(each) <= gap for each in gaps)
