"""What a case says of its arms against a noise floor, held against what was found of them."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from swarepro.case import convert_case
from swarepro.compare.assessment import Drift, Flip
from swarepro.expect import ExpectFloor
from swarepro.options import no_progress
from swarepro.runs import check_floor as module

CASE = convert_case(
    {
        "name": "x",
        "model": "synthetic:gemma3-tiny",
        "sessions": [{"prompt": {"tokens": [1]}}],
        "fault": "other-reduction-order",
        "expect": {"faulty": {"verdict": "DETERMINISTIC"}},
    },
    source="x.toml",
)


def flip(mine: float | None, theirs: float | None) -> Flip:
    return Flip(
        session=1,
        position=5,
        baseline=7,
        target=8,
        baseline_gap=mine,
        target_gap=theirs,
        apart=None,
        equal=None,
    )


def drift(moved: float) -> Drift:
    return Drift(session=0, position=0, token=1, moved=moved, kl=0.0)


@pytest.fixture
def missed(monkeypatch, tmp_path: Path):
    """Return what of an expectation was missed by what is said to have been found."""

    def judge(expect: ExpectFloor, **found: object) -> list[str]:
        told = {"verdict": expect.verdict, "first": None, "flips": (), "drift": None, **found}
        monkeypatch.setattr(module, "open_bundle", lambda path: path.name)
        monkeypatch.setattr(module, "calibrate_case", lambda case, *rest, **more: case)
        monkeypatch.setattr(module, "assess_bundles", lambda *sides, path: SimpleNamespace(**told))
        checks = module.check_floor(CASE, expect, tmp_path, progress=no_progress)
        return [f"{check.what}: {check.found}" for check in checks if not check.ok]

    return judge


def test_the_floor_is_that_of_the_healthy_case(monkeypatch, tmp_path: Path) -> None:
    seen = []
    monkeypatch.setattr(module, "open_bundle", lambda path: path.name)
    monkeypatch.setattr(module, "calibrate_case", lambda case, *rest, **more: case)
    monkeypatch.setattr(
        module,
        "assess_bundles",
        lambda *sides, path: seen.append(sides) or SimpleNamespace(verdict="WRONG", first=None),
    )
    list(module.check_floor(CASE, ExpectFloor(verdict="WRONG"), tmp_path, progress=no_progress))
    ((healthy, faulty, floor),) = seen
    assert (healthy, faulty) == ("healthy", "faulty")
    assert (floor.name, floor.fault, floor.expect.faulty) == ("x", None, None)


@pytest.mark.parametrize("moved", [0.01, -0.01])
def test_predictions_that_move_as_far_as_they_may(missed, moved: float) -> None:
    assert missed(ExpectFloor(verdict="NOISE", drift_at_most=0.01), drift=drift(moved)) == []


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (drift(-0.02), "0.02 nat"),
        (drift(0.0), "0 nat"),  # the case says that they move
        (drift(float("nan")), "nan nat"),
        (None, "no logits"),
    ],
)
def test_predictions_that_do_not(missed, found: Drift | None, said: str) -> None:
    floor = ExpectFloor(verdict="NOISE", drift_at_most=0.01)
    assert missed(floor, drift=found) == [f"floor drift: {said}"]


@pytest.mark.parametrize("gaps", [(0.5, -0.5), (-0.5, 0.0)])
def test_tokens_that_flip_at_a_small_gap(missed, gaps: tuple[float, float]) -> None:
    assert missed(ExpectFloor(verdict="NOISE", gap_at_most=0.5), flips=(flip(*gaps),)) == []


@pytest.mark.parametrize(
    ("gaps", "said"),
    [((0.6, 0.0), "0.6"), ((0.0, -0.6), "0"), ((-0.6, 0.0), "-0.6"), ((None, 0.0), "unknown")],
)
def test_tokens_that_flip_at_a_larger_one(missed, gaps, said: str) -> None:
    """On either side, in either direction, or where nobody knows."""
    floor = ExpectFloor(verdict="TIE", gap_at_most=0.5)
    near = flip(0.0, 0.0)
    at = "position 5 of session 1 at a gap of"
    assert missed(floor, flips=(near, flip(*gaps))) == [f"floor flips: {at} 0, {at} {said}"]


def test_no_token_may_flip_where_no_gap_is_stated(missed) -> None:
    assert len(missed(ExpectFloor(verdict="NOISE"), flips=(flip(0.0, 0.0),))) == 1
    assert missed(ExpectFloor(verdict="NOISE")) == []
