"""A floor on real runs: legal variants never are wrong, defects never are noise."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import msgspec
import pytest

from swarepro import api
from swarepro.case import CaseSpec, PromptSpec, SessionSpec
from swarepro.checkpoint import open_checkpoint
from swarepro.compare.floor import Floor, read_floor
from swarepro.errors import IncomparableError, SwareproError, UsageError
from swarepro.options import CaptureOptions, RunOptions
from swarepro.runs.prepare import plan_case
from swarepro.runs.variants import Variant, legal_variants
from swarepro.runtime.wrappers import OpsWrapper, on_ops
from swarepro.shipped import find_case, load_case, shipped_cases

CASE = CaseSpec(
    name="noise",
    model="synthetic:gemma4-tiny?layers=6",
    dtype="bf16",
    capacity=64,
    sessions=(SessionSpec(prompt=PromptSpec(random=43, seed=3), chunks=(32, 11), decode=2),),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("noise")


@pytest.fixture(scope="module")
def floor(folder: Path) -> Floor:
    api.calibrate_case(CASE, out=folder / "floor.json")
    return read_floor(folder / "floor.json")


def cut(*chunks: int) -> CaseSpec:
    return msgspec.structs.replace(
        CASE, sessions=(msgspec.structs.replace(CASE.sessions[0], chunks=chunks),)
    )


def test_every_boundary_that_has_positions_has_a_floor(floor: Floor) -> None:
    by_kind = {
        kind: [v.name for v in floor.variants if v.kind == kind] for kind in ("order", "precision")
    }
    assert by_kind == {
        "order": [
            "chunks whole",
            "chunks halves",
            "chunks of 7",
            "chunks with the last row alone",
            "route eager-paged",
            "padded rows",
            "split sums",
        ],
        "precision": ["engine dense"],
    }
    assert len({variant.boundaries for variant in floor.variants}) == 1
    entries = {(entry.point, entry.layer): entry for entry in floor.entries}
    assert len(entries) == 2 + 1 + 6 * 13 + 2  # ids and positions, embedding, layers, tail
    assert entries["L{layer}_input_normed", 0].order == 0.0  # row by row, whatever the chunks
    assert entries["after_layer_{layer}", 5].order > 0.0
    for entry in floor.entries:
        exact = entry.point in ("input_ids", "positions")
        assert (entry.precision > 0.0) is not exact
        assert entry.order_l2 <= entry.order
        assert entry.order < 0.2  # a wrong key is ten times more


def only(monkeypatch: pytest.MonkeyPatch, *names: str, **changed: object) -> None:
    """Let a calibration have these variants alone, in this order, changed like this."""

    def chosen(*given: object, **more: object) -> tuple[Variant, ...]:
        found = {variant.name: variant for variant in legal_variants(*given, **more)}
        return tuple(replace(found[name], **changed) for name in names)

    monkeypatch.setattr("swarepro.runs.calibrate.legal_variants", chosen)


@pytest.mark.parametrize("kind", ["order", "precision"])
def test_a_floor_is_the_largest_spread_of_all_variants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Whichever comes first."""
    small = msgspec.structs.replace(CASE, model="synthetic:gemma4-tiny?layers=2", dtype="fp32")
    names, found = ("chunks of 7", "split sums"), {}
    for chosen in (names[:1], names[1:], names, names[::-1]):
        only(monkeypatch, *chosen, kind=kind)
        made = api.calibrate_case(small, out=tmp_path / "-".join(chosen))
        found[chosen] = {
            (entry.point, entry.layer): (getattr(entry, kind), getattr(entry, f"{kind}_l2"))
            for entry in made.entries
        }
    one, two, both, turned = found.values()
    assert both == turned
    assert both == {
        place: tuple(max(pair) for pair in zip(spread, two[place], strict=True))
        for place, spread in one.items()
    }
    assert one != two


def test_a_variant_that_is_not_finite_is_no_floor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(OpsWrapper):
        def linear(self, x, weight):
            return super().linear(x, weight) * float("nan")

    only(monkeypatch, "padded rows", wrapper=on_ops(Broken))
    with pytest.raises(IncomparableError, match="padded rows: L0_qkv_projected of step 0 is not"):
        api.calibrate_case(CASE, out=tmp_path / "f")
    assert not (tmp_path / "f").exists()


def test_legal_pairs_are_never_wrong(folder: Path, floor: Floor) -> None:
    """Cuts and routes that the calibration has not seen."""
    runs = {"own": CASE, "many": cut(5, 13, 9, 16), "ones": cut(40, 1, 1, 1), "late": cut(3, 40)}
    for run_id, case in runs.items():
        api.run_case(case, out=folder, run_id=run_id)
    options = RunOptions(route="eager-paged")
    api.run_case(cut(20, 23), out=folder, run_id="paged", options=options)
    verdicts = {
        (a, b): api.assess_runs(folder / a, folder / b, floor=folder / "floor.json").verdict
        for a, b in combinations((*runs, "paged"), 2)
    }
    assert set(verdicts.values()) <= {"NOISE", "IDENTICAL"}
    assert "NOISE" in verdicts.values()


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("skip-swa-allocation", "L0_kv_slice_post_write"),
        ("chunk-local-positions", "positions"),
        ("shift-with-global-base", "L0_kv_slice_post_write"),
        ("output-rows-unwritten", "L0_attention_output"),
    ],
)
@pytest.mark.parametrize("against", ["same", "other"])
def test_a_defect_is_never_noise(
    folder: Path, floor: Floor, fault: str, name: str, against: str
) -> None:
    """Against the run of the same chunks, and against one that rounds otherwise."""
    baseline = folder / f"base-{fault}-{against}"
    case = CASE if against == "same" else cut(43)
    api.run_case(case, out=folder, run_id=baseline.name)
    target = folder / f"bad-{fault}-{against}"
    api.run_case(CASE, out=folder, run_id=target.name, options=RunOptions(faults=(fault,)))
    found = api.assess_runs(baseline, target, floor=folder / "floor.json")
    assert found.verdict == "WRONG"
    assert found.first is not None
    assert found.first.name == name


def test_another_reduction_order_is_noise(tmp_path: Path) -> None:
    """D5: the same keys added up in another order. Never a dirty cache.

    In float32, where it shows: bfloat16 rounds the difference away.
    """
    case = msgspec.structs.replace(CASE, model="synthetic:gemma4-tiny?layers=2", dtype="fp32")
    api.calibrate_case(case, out=tmp_path / "floor.json")
    for run_id, faults in (("ok", ()), ("d5", ("other-reduction-order",))):
        api.run_case(case, out=tmp_path, run_id=run_id, options=RunOptions(faults=faults))
    found = api.assess_runs(tmp_path / "ok", tmp_path / "d5", floor=tmp_path / "floor.json")
    assert found.verdict == "NOISE"
    assert found.within[0].name == "L0_attention_output"
    assert found.above == ()


def test_a_script_has_no_other_chunks() -> None:
    case = next(case for case in map(load_case, shipped_cases().values()) if case.script)
    plan = plan_case(case, open_checkpoint(case.model))
    names = [v.name for v in legal_variants(case, RunOptions(), plan, route="eager")]
    assert names == ["route eager-paged", "padded rows", "split sums", "engine dense"]


def test_a_stage_that_receives_has_the_chunks_of_its_sender(tmp_path: Path) -> None:
    case = msgspec.structs.replace(
        CASE, sessions=(msgspec.structs.replace(CASE.sessions[0], decode=0),)
    )
    first = msgspec.structs.replace(case, layers="0:3")
    last = msgspec.structs.replace(case, layers="3:6")
    sent = api.run_case(first, out=tmp_path, run_id="sent").bundle
    found = api.calibrate_case(last, out=tmp_path / "f", options=RunOptions(recv=sent))
    assert [v.name for v in found.variants] == [
        "route eager-paged",
        "padded rows",
        "split sums",
        "engine dense",
    ]
    alone = api.calibrate_case(first, out=tmp_path / "g")
    assert "chunks whole" in [v.name for v in alone.variants]


def test_a_larger_chunk_has_the_whole_pool_of_the_windows(tmp_path: Path) -> None:
    """Small chunks and eviction get by with fewer slots than the prompt has rows."""
    session = msgspec.structs.replace(CASE.sessions[0], chunks=None, chunk=4)
    small = msgspec.structs.replace(
        CASE,
        model="synthetic:gemma4-tiny?layers=2",
        swa_capacity=40,
        evict=True,
        sessions=(session,),
    )
    api.run_case(small, out=tmp_path, run_id="own")
    whole = msgspec.structs.replace(
        small, sessions=(msgspec.structs.replace(session, chunk=None, chunks=(43,)),)
    )
    with pytest.raises(SwareproError):
        api.run_case(whole, out=tmp_path, run_id="whole")
    made = api.calibrate_case(small, out=tmp_path / "f")
    assert "chunks whole" in [variant.name for variant in made.variants]


def test_cuts_that_take_too_many_steps_are_left_out() -> None:
    session = SessionSpec(prompt=PromptSpec(random=500, seed=1), chunk=64)
    case = msgspec.structs.replace(CASE, capacity=512, sessions=(session,))
    plan = plan_case(case, open_checkpoint(case.model))
    names = [v.name for v in legal_variants(case, RunOptions(), plan, route="eager")]
    assert [name for name in names if name.startswith("chunks")] == [
        "chunks whole",
        "chunks halves",
        "chunks of 32",
        "chunks with the last row alone",
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (RunOptions(faults=("late-store-row",)), "healthy run"),
        (RunOptions(engine="dense"), "healthy run"),
        (RunOptions(capture=CaptureOptions(store="digest")), "measured on tensors"),
    ],
)
def test_what_cannot_be_calibrated(tmp_path: Path, options: RunOptions, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        api.calibrate_case(CASE, out=tmp_path / "f", options=options)
    assert not (tmp_path / "f").exists()


def test_a_case_with_a_defect_in_both_arms_has_no_floor(tmp_path: Path) -> None:
    case = find_case("padding-rows-stored")
    assert case.background == ("masked-lanes-multiply",)
    with pytest.raises(UsageError, match="the fault masked-lanes-multiply in both arms"):
        api.calibrate_case(case, out=tmp_path / "f")
    assert not (tmp_path / "f").exists()
    healthy = msgspec.structs.replace(case, background=())
    assert api.calibrate_case(healthy, out=tmp_path / "f").entries


def test_a_floor_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        api.calibrate_case(CASE, out=tmp_path / "f")
    assert (tmp_path / "f").read_text() == "mine"


def test_another_choice_among_equal_logits_is_a_tie(tmp_path: Path) -> None:
    """E6: every boundary is equal up to the token; what it leads to has other inputs."""
    case = find_case("sampler-takes-last-tie")
    api.calibrate_case(case, out=tmp_path / "floor.json")
    for run_id, faults in (("ok", ()), ("bad", ("sampler-takes-last-tie",))):
        api.run_case(case, out=tmp_path, run_id=run_id, options=RunOptions(faults=faults))
    found = api.assess_runs(tmp_path / "ok", tmp_path / "bad", floor=tmp_path / "floor.json")
    assert found.verdict == "TIE"
    (flip,) = found.flips
    assert (flip.position, flip.equal, flip.baseline_gap, flip.apart) == (5, True, 0.0, 0.0)
    assert (flip.baseline, flip.target) == (130, 156)


def test_a_floor_without_a_place_is_refused_before_anything_runs(tmp_path: Path) -> None:
    told: list[str] = []
    with pytest.raises(UsageError, match="is no folder"):
        api.calibrate_case(
            CASE, out=tmp_path / "no" / "f", progress=lambda *what: told.append(str(what))
        )
    assert told == []
