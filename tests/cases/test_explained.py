"""`explain` names the fault of every shipped case, alone or in a tie that the case cannot break."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from swarepro import api
from swarepro.bundle.schema import TensorRecord
from swarepro.case import CaseSpec, PromptSpec, SessionSpec
from swarepro.errors import SwareproError
from swarepro.faults import FAULTS
from swarepro.options import CaptureOptions, RunOptions
from swarepro.runs.hypotheses import Place, places, run_hypothesis
from swarepro.runs.prepare import prepare

TIES = {
    # No slot, and slot 0: one thing, wherever rows go to slot 0.
    "skip-swa-allocation": {"swa-rows-alias-slot-0", "allocate-after-metadata"},
    "swa-rows-alias-slot-0": {"skip-swa-allocation"},
    # What a layer is to be told from what it is told: with one full layer, or one chunk, or no
    # decoded token, several defects give the same bytes.
    "every-layer-windowed": {"window-of-group-on-all"},
    "window-of-group-on-all": {"every-layer-windowed"},
    "local-layer-ids": {"every-layer-sliding"},
    "window-dropped-on-continuation": {"window-never-set", "no-layer-windowed"},
    "window-never-set": {"no-layer-windowed"},
    "window-one-too-large": {
        "window-one-too-large-in-prefill",
        "window-never-set",
        "no-layer-windowed",
    },
    "window-one-too-large-in-prefill": {"window-one-too-large"},
    # Whose batch has no prompt beside two decoded tokens, or the other way round.
    "other-order-beside-prompts": {"order-by-batch-size"},
}
"""Which faults may stand beside one."""

NOT_WRONG = {
    # In bf16 logits this small are moved less by their cap than by what legal variants round.
    "final-softcap-dropped": "NOISE",
    # Another choice among equal logits is no wrong value.
    "sampler-takes-last-tie": "TIE",
}
"""Cases whose harmed value is not called WRONG against a floor, and what it is called."""

Digests = Mapping[Place, TensorRecord]


def shown() -> list[CaseSpec]:
    """Return the cases of tiny models whose fault shows against the healthy run of the case."""
    found = []
    for case in map(api.find_case, api.shipped_cases()):
        diff = case.expect.diff
        if diff is None or diff.verdict != "DIVERGED" or diff.baseline is not None:
            continue
        if case.model.startswith("synthetic:"):
            found.append(case)
    return found


@dataclass(frozen=True)
class Runs:
    """A case without a fault, and with each of them; those that end with an error are left out."""

    healthy: Digests
    faulty: Mapping[str, Digests]


_CACHE: dict[bytes, Runs] = {}


def runs_of(case: CaseSpec) -> Runs:
    """Run what `explain` runs; cases that differ in nothing but their fault share it."""
    diff = case.expect.diff
    assert diff is not None
    same = msgspec.structs.replace(
        case, name="", summary="", fault=None, expect=type(case.expect)(), repeats=2
    )
    key = msgspec.json.encode((same, diff.fill, diff.seed))
    if key not in _CACHE:
        options = RunOptions(
            ownership=False,
            fill=diff.fill,
            schedule="auto" if diff.seed is None else f"seeded:{diff.seed}",
            capture=CaptureOptions(store="digest"),
        )
        prepared = prepare(case, options, copies=0, progress=lambda *told: None)
        steps = len(prepared.plan.steps)

        def run(fault: str | None) -> Digests:
            return places(run_hypothesis(prepared, fault, name="", steps=steps).records)

        faulty = {}
        for name in FAULTS.names():
            try:
                faulty[name] = run(name)
            except SwareproError:
                continue
        _CACHE[key] = Runs(run(None), faulty)
    return _CACHE[key]


def equal(one: TensorRecord | None, other: TensorRecord | None) -> bool:
    return (
        one is not None
        and other is not None
        and (one.digest, one.shape) == (other.digest, other.shape)
    )


@pytest.mark.slow
def test_every_fault_is_named_alone_or_in_a_known_tie() -> None:
    wrong = {}
    for case in shown():
        runs = runs_of(case)
        assert case.fault is not None
        target = runs.faulty[case.fault]
        first = next(
            place for place, mine in runs.healthy.items() if not equal(mine, target.get(place))
        )
        until = [p for p, record in target.items() if record.index <= target[first].index]
        fits = {
            name: sum(equal(run.get(place), record) for place, record in target.items())
            for name, run in runs.faulty.items()
            if all(equal(run.get(place), target[place]) for place in until)
        }
        best = {name for name, count in fits.items() if count == max(fits.values())}
        if not {case.fault} <= best <= {case.fault} | TIES.get(case.fault, set()):
            wrong[case.name] = best
    assert wrong == {}


def test_enough_cases_are_looked_at() -> None:
    faults = {case.fault for case in shown()}
    assert len(faults) >= 50
    assert set(TIES) <= set(FAULTS.names())


@pytest.mark.slow
def test_every_harmed_value_is_wrong_and_not_noise(tmp_path: Path) -> None:
    """Against a floor of its model and dtype, measured on a prompt of its own."""
    floors: dict[tuple[str, str], Path] = {}
    missed = {}
    for case in shown():
        diff = case.expect.diff
        assert diff is not None
        if diff.first_value is None or case.background or diff.within is not None:
            continue
        key = case.model, case.dtype
        if key not in floors:
            floors[key] = tmp_path / f"floor-{len(floors)}.json"
            other = CaseSpec(
                name="floor",
                model=case.model,
                dtype=case.dtype,
                stages=case.stages,
                sessions=(SessionSpec(prompt=PromptSpec(random=158, seed=3), chunk=40, decode=2),),
            )
            api.calibrate_case(other, out=floors[key])
        schedule = "auto" if diff.seed is None else f"seeded:{diff.seed}"
        for run_id, faults in (("ok", ()), ("bad", (case.fault or "",))):
            options = RunOptions(fill=diff.fill, schedule=schedule, faults=faults)
            api.run_case(case, out=tmp_path / case.name, run_id=run_id, options=options)
        folder = tmp_path / case.name
        found = api.assess_runs(folder / "ok", folder / "bad", floor=floors[key])
        if found.verdict != "WRONG":
            missed[case.name] = str(found.verdict)
        shutil.rmtree(folder)
    assert missed == NOT_WRONG
