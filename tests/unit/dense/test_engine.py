"""The dense reference against the stage runtime: every shipped case, every boundary of both.

What agrees is computed by formulas that share no line; `test_transformers_parity.py` ties the
runtime to a third implementation.
"""

from pathlib import Path

import msgspec
import pytest

from swarepro import api, points
from swarepro.bundle.read import open_bundle
from swarepro.case import CaseSpec, PromptSpec, SessionSpec
from swarepro.compare.types import Divergence, Tolerance, Verdict
from swarepro.errors import SwareproError, UsageError
from swarepro.options import CaptureOptions, RunOptions
from swarepro.points import Level
from swarepro.shipped import find_case, load_case, shipped_cases


def _distinct() -> list[CaseSpec]:
    """Return the shipped cases of tiny models, one of those that are healthy in the same way."""
    chosen: dict[bytes, CaseSpec] = {}
    for case in map(load_case, shipped_cases().values()):
        if case.model.startswith("synthetic:"):
            what = (case.model, case.sessions, case.script, case.page_size, case.evict, case.stages)
            chosen.setdefault(msgspec.json.encode(what), case)
    return list(chosen.values())


NOT_DENSE = {"full_slots", "swa_slots", "route", points.KV_SLICE_PRE_WRITE.name}
FP32 = Tolerance(atol=1e-4, rtol=1e-4)
"""Float32 rounding through 12 layers: 3e-5 was the largest difference of these cases."""


def compared(
    case: CaseSpec, folder: Path, *, engine: str = "dense-fp64", faults: tuple[str, ...] = ()
) -> Divergence:
    """Compare a run of ``case`` with the reference of the same case."""
    api.run_case(case, out=folder, run_id="dense", options=RunOptions(engine=engine))
    api.run_case(case, out=folder, run_id="paged", options=RunOptions(faults=faults))
    return api.diff_runs(folder / "dense", folder / "paged", tolerance=FP32)


@pytest.mark.parametrize("case", _distinct(), ids=lambda case: case.name)
def test_every_healthy_case_agrees_at_every_boundary(case: CaseSpec, tmp_path: Path) -> None:
    case = msgspec.structs.replace(case, dtype="fp32", background=())
    if case.expect.healthy.error is not None:
        with pytest.raises(SwareproError):
            api.run_case(case, out=tmp_path, run_id="paged")
        return
    found = compared(case, tmp_path)
    assert found.verdict is Verdict.WITHIN_TOLERANCE
    assert set(found.skipped) <= NOT_DENSE
    assert found.only_baseline == found.only_target == ()
    manifests = [open_bundle(tmp_path / name).manifest for name in ("dense", "paged")]
    assert manifests[0].tokens == manifests[1].tokens


def test_every_point_of_the_table_was_compared(tmp_path: Path) -> None:
    case = msgspec.structs.replace(find_case("anchor-a"), dtype="fp32")
    compared(case, tmp_path)
    optional = {point.name for point in points.ALL if point.optional}
    seen = [
        {record.point for record in open_bundle(tmp_path / name).records}
        for name in ("dense", "paged")
    ]
    assert seen[1] - seen[0] == NOT_DENSE
    assert seen[0] == {point.name for point in points.ALL} - NOT_DENSE
    gemma2 = msgspec.structs.replace(case, model="synthetic:gemma2-tiny")
    found = compared(gemma2, tmp_path / "gemma2")
    # Its attention is sharp, and its scores ten times as large: 1e-4 was the largest difference.
    sharp = Tolerance(atol=3e-4, rtol=1e-4)
    wide = api.diff_runs(tmp_path / "gemma2/dense", tmp_path / "gemma2/paged", tolerance=sharp)
    assert wide.verdict is Verdict.WITHIN_TOLERANCE
    assert found.only_baseline == found.only_target == ()
    seen[0] -= optional
    assert {record.point for record in open_bundle(tmp_path / "gemma2/dense").records} == seen[0]


@pytest.mark.parametrize("engine", ["dense", "dense-fp64"])
@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("skip-swa-allocation", "L0_kv_slice_post_write"),
        ("chunk-local-positions", "positions"),
    ],
)
def test_a_fault_is_found_where_it_acts(tmp_path: Path, engine: str, fault: str, name: str) -> None:
    """The negative control: the same comparison with a defect in the runtime."""
    case = msgspec.structs.replace(find_case("anchor-a"), dtype="fp32")
    found = compared(case, tmp_path, engine=engine, faults=(fault,))
    assert found.verdict is Verdict.DIVERGED
    assert found.first is not None
    assert found.first.name == name


def test_the_reference_of_bf16_weights_is_computed_in_float32(tmp_path: Path) -> None:
    """Weights and the embedding's scale are rounded as the run has them; nothing else is."""
    case = find_case("anchor-a")
    api.run_case(case, out=tmp_path, run_id="dense", options=RunOptions(engine="dense"))
    api.run_case(case, out=tmp_path, run_id="paged")
    dense, paged = (open_bundle(tmp_path / name) for name in ("dense", "paged"))
    assert dense.manifest.backend.dtype == "fp32"
    assert {record.dtype for record in dense.records} == {"F32", "I64"}
    # bf16 has 8 bits: one rounding of the product of row and scale.
    one_rounding = api.diff_runs(
        tmp_path / "dense", tmp_path / "paged", tolerance=Tolerance(atol=0.0, rtol=2**-8)
    )
    assert "embedding_output" not in {
        item.name for item in one_rounding.boundaries if item.verdict is Verdict.DIVERGED
    }
    assert paged.manifest.backend.dtype == "bf16"


def test_a_stage_alone_receives_what_the_stage_before_it_sent(tmp_path: Path) -> None:
    case = msgspec.structs.replace(find_case("anchor-a"), dtype="fp32")
    api.run_case(case, out=tmp_path, run_id="all")
    later = msgspec.structs.replace(case, stages=None, layers="4:8")
    for engine in ("dense", "paged"):
        options = RunOptions(engine=engine, recv=tmp_path / "all")
        api.run_case(later, out=tmp_path, run_id=engine, options=options)
    found = api.diff_runs(tmp_path / "dense", tmp_path / "paged", tolerance=FP32)
    assert found.verdict is Verdict.WITHIN_TOLERANCE
    assert found.compared > 100


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (RunOptions(engine="dense", faults=("late-store-row",)), "no fault: late-store-row"),
        (RunOptions(engine="dense", route="eager-paged"), "no route: eager-paged"),
        (RunOptions(engine="dense-fp64", schedule="seeded:1"), "no schedule: seeded:1"),
        (RunOptions(engine="dense", fill="nan"), "no fill: nan"),
        (RunOptions(engine="dense", ownership=True), "no slots to watch: ownership on was asked"),
    ],
)
def test_what_the_reference_has_not_is_refused(
    tmp_path: Path, options: RunOptions, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        api.run_case(find_case("anchor-a"), out=tmp_path, run_id="x", options=options)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("engine", "asked", "said"),
    [
        ("dense", ("swa_slots",), "points swa_slots matches no boundary that the engine dense has"),
        ("dense-fp64", ("route", "L*_kv_slice_pre_write"), "that the engine dense-fp64 has"),
    ],
)
def test_points_that_the_reference_has_not_are_refused(
    tmp_path: Path, engine: str, asked: tuple[str, ...], said: str
) -> None:
    options = RunOptions(engine=engine, capture=CaptureOptions(points=asked))
    with pytest.raises(UsageError, match=said) as caught:
        api.run_case(find_case("anchor-a"), out=tmp_path, run_id="x", options=options)
    assert f"the engine {engine} has all of them but" in str(caught.value.hint)
    for name in NOT_DENSE:
        assert name in str(caught.value.hint)
    assert not (tmp_path / "x").exists()
    # The negative control: the stage runtime has them.
    paged = RunOptions(capture=CaptureOptions(points=asked))
    assert api.run_case(find_case("anchor-a"), out=tmp_path, options=paged).manifest.num_records


@pytest.mark.parametrize(
    ("engine", "asked", "unmatched"),
    [
        ("dense", ("*",), ()),
        ("dense", ("L0_*", "*slots", "logits"), ("*slots",)),
        ("paged", ("L0_*", "*slots", "logits"), ()),
        ("paged", ("L99_o_proj", "logits"), ("L99_o_proj",)),
    ],
)
def test_a_part_of_the_points_that_a_run_has_not_is_told(
    tmp_path: Path, engine: str, asked: tuple[str, ...], unmatched: tuple[str, ...]
) -> None:
    options = RunOptions(engine=engine, capture=CaptureOptions(points=asked))
    result = api.run_case(find_case("anchor-a"), out=tmp_path, run_id="x", options=options)
    assert result.unmatched == unmatched


def test_level_off_looks_at_no_points(tmp_path: Path) -> None:
    capture = CaptureOptions(level=Level.OFF, points=("L0_o_proj",))
    options = RunOptions(engine="dense", capture=capture)
    result = api.run_case(find_case("anchor-a"), out=tmp_path, options=options)
    assert result.unmatched == ()
    assert {record.point for record in open_bundle(result.bundle).records} == {"logits"}


@pytest.mark.parametrize("ownership", [None, False])
def test_the_reference_runs_unwatched(tmp_path: Path, ownership: bool | None) -> None:
    options = RunOptions(engine="dense", ownership=ownership)
    result = api.run_case(find_case("anchor-a"), out=tmp_path, options=options)
    assert result.manifest.shadow is False
    paged = api.run_case(find_case("anchor-a"), out=tmp_path, options=RunOptions())
    assert paged.manifest.shadow is True


def test_one_chunk_and_many_give_the_same_reference(tmp_path: Path) -> None:
    """In float64, what is left of other cuts is far below what float32 could show."""
    for run_id, chunks in (("one", (40,)), ("many", (16, 1, 20, 3))):
        case = CaseSpec(
            name=run_id,
            model="synthetic:gemma3-tiny",
            dtype="fp32",
            capacity=64,
            sessions=(SessionSpec(prompt=PromptSpec(random=40, seed=3), chunks=chunks, decode=3),),
        )
        options = RunOptions(engine="dense-fp64", capture=CaptureOptions())
        api.run_case(case, out=tmp_path, run_id=run_id, options=options)
    found = api.diff_runs(
        tmp_path / "one", tmp_path / "many", tolerance=Tolerance(atol=1e-11, rtol=1e-11)
    )
    assert found.align == "position"
    assert found.verdict is Verdict.WITHIN_TOLERANCE
