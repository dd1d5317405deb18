"""Judging hand-made runs against a hand-made floor."""

from pathlib import Path

import pytest

from swarepro.compare.assess import assess_bundles
from swarepro.compare.assessment import Assessment
from tests.unit.bundle.factory import Run
from tests.unit.compare.assessing import entries
from tests.unit.compare.test_floor import floor


@pytest.fixture
def assessed(tmp_path: Path):
    def assess(baseline: Run, target: Run, *, made=None, whole=None, **more) -> Assessment:
        sides = (baseline.open(tmp_path / "b"), target.open(tmp_path / "t"))
        made = whole or floor(*(entries() if made is None else made))
        return assess_bundles(*sides, made, path=Path("floor.json"), **more)

    return assess
