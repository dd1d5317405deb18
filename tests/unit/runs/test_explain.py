"""Known defects held against the first boundary where two runs part."""

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from swarepro import api
from swarepro.bundle.read import open_bundle
from swarepro.bundle.write import BundleWriter
from swarepro.case import CaseSpec, PromptSpec, SessionSpec
from swarepro.errors import BundleError, IncomparableError
from swarepro.faults import FAULTS
from swarepro.interventions.rounding import ROUNDINGS
from swarepro.options import CaptureOptions, RunOptions
from swarepro.points import Level
from swarepro.report.explanation import explanation_report
from swarepro.runs.once import run_to_bundle
from swarepro.runs.parting import check_same_subject
from swarepro.runs.prepare import prepare
from swarepro.runtime.wrappers import OpsWrapper, on_ops
from tests.unit.report import made

CASE = CaseSpec(
    name="explained",
    model="synthetic:gemma3-tiny?layers=6",
    dtype="fp32",
    capacity=64,
    sessions=(SessionSpec(prompt=PromptSpec(random=36, seed=3), chunks=(20, 16), decode=2),),
)
OTHER = msgspec.structs.replace(
    CASE, sessions=(msgspec.structs.replace(CASE.sessions[0], chunks=(35, 1)),)
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("explain")
    api.run_case(CASE, out=place, run_id="own")
    api.run_case(OTHER, out=place, run_id="other")
    api.calibrate_case(CASE, out=place / "floor.json")
    return place


def faulty(folder: Path, fault: str, **more) -> Path:
    if not (folder / fault).exists():
        api.run_case(CASE, out=folder, run_id=fault, options=RunOptions(faults=(fault,), **more))
    return folder / fault


@pytest.mark.parametrize(
    ("fault", "name", "step"),
    [
        ("window-one-too-large", "L0_attention_output", 1),
        ("rope-factor-missing", "L5_rotary_applied", 0),
        ("mask-without-offset", "L0_attention_output", 1),
        ("embed-scale-twice", "embedding_output", 0),
    ],
)
def test_the_defect_is_named_alone(folder: Path, fault: str, name: str, step: int) -> None:
    found = api.explain_runs(folder / "own", faulty(folder, fault))
    assert [each.fault for each in found.best] == [fault]
    assert (found.name, found.step) == (name, step)
    assert found.best[0].differing == 0
    assert 0 < found.baseline_differing <= found.num_values
    assert len(found.hypotheses) == len(FAULTS.names())


def test_a_defect_that_both_runs_have_is_no_hypothesis(folder: Path) -> None:
    both = msgspec.structs.replace(CASE, background=("masked-lanes-multiply",))
    options = RunOptions(faults=("window-one-too-large",))
    api.run_case(both, out=folder, run_id="both")
    target = api.run_case(both, out=folder, run_id="both-bad", options=options).bundle
    found = api.explain_runs(folder / "both", target)
    assert [each.fault for each in found.best] == ["window-one-too-large"]
    assert {each.fault for each in found.hypotheses} == set(FAULTS.names()) - set(both.background)


def test_it_is_named_against_a_baseline_of_other_chunks(folder: Path) -> None:
    target = faulty(folder, "window-one-too-large")
    with pytest.raises(IncomparableError, match="the chunking differs") as raised:
        api.explain_runs(folder / "other", target)
    assert "swarepro calibrate" in (raised.value.hint or "")
    found = api.explain_runs(folder / "other", target, floor=folder / "floor.json")
    assert [each.fault for each in found.best] == ["window-one-too-large"]
    assert found.best[0].fit == "exact"


class Scaled(OpsWrapper):
    """No known defect: a projection of one model is off by 3 %."""

    def linear(self, x, weight):
        return super().linear(x, weight) * 1.03


def test_an_unknown_defect_is_not_explained(folder: Path) -> None:
    prepared = prepare(CASE, RunOptions(), progress=lambda *told: None)
    run_to_bundle(
        prepared,
        folder / "unknown",
        schedule=prepared.schedule,
        on_step=lambda step: None,
        wrapper=on_ops(Scaled),
    )
    found = api.explain_runs(folder / "own", folder / "unknown")
    assert found.name == "L0_qkv_projected"
    assert found.best == ()
    assert not {each.fit for each in found.hypotheses} & {"exact", "within"}


def test_a_defect_of_digests_alone_is_named(folder: Path) -> None:
    options = RunOptions(faults=("window-one-too-large",), capture=CaptureOptions(store="digest"))
    target = api.run_case(CASE, out=folder, run_id="digests", options=options).bundle
    found = api.explain_runs(folder / "own", target)
    assert [each.fault for each in found.best] == ["window-one-too-large"]
    assert found.num_values == 0


def test_what_the_targets_manifest_says_of_faults_is_not_looked_at(folder: Path) -> None:
    """Its tensors are a healthy run's, and its manifest claims a fault."""
    options = RunOptions(faults=("finish-leaks-slots",))
    api.run_case(CASE, out=folder, run_id="claims", options=options)
    with pytest.raises(IncomparableError, match="nothing to explain"):
        api.explain_runs(folder / "own", folder / "claims")


def test_equal_runs_and_noise_have_nothing_to_explain(folder: Path) -> None:
    with pytest.raises(IncomparableError, match="no boundary differs"):
        api.explain_runs(folder / "own", folder / "own")
    with pytest.raises(IncomparableError, match="the runs are NOISE"):
        api.explain_runs(folder / "own", folder / "other", floor=folder / "floor.json")


def test_a_target_that_ran_elsewhere_needs_a_floor(folder: Path) -> None:
    """Its first rows are not what this machine computes; then comes the defect."""
    prepared = prepare(CASE, RunOptions(), progress=lambda *told: None)
    for name, faults in (("there", ()), ("there-bad", ("window-one-too-large",))):
        run_to_bundle(
            replace(prepared, options=replace(prepared.options, faults=faults)),
            folder / name,
            schedule=prepared.schedule,
            on_step=lambda step: None,
            wrapper=ROUNDINGS["split sums"],
        )
    with pytest.raises(IncomparableError, match="is not the target here") as raised:
        api.explain_runs(folder / "there", folder / "there-bad")
    assert "measure a floor" in (raised.value.hint or "")
    found = api.explain_runs(folder / "there", folder / "there-bad", floor=folder / "floor.json")
    # Of the boundary alone: what a decoded token would tell is not asked where noise is left.
    assert {each.fault for each in found.best} == {
        "window-one-too-large",
        "window-one-too-large-in-prefill",
    }
    assert {each.fit for each in found.best} == {"within"}
    assert max(each.remainder for each in found.best) < 0.01
    assert all(each.fit != "exact" for each in found.hypotheses)


def test_a_boundary_that_several_stages_have_is_held_and_shown_as_the_diff_does(
    tmp_path: Path,
) -> None:
    """Only layer 5 is a full one, and it lies in the second of three stages."""
    case = msgspec.structs.replace(
        CASE, model="synthetic:gemma3-tiny?layers=9", stages="0:3,3:6,6:9"
    )
    edges = CaptureOptions(points=("boundary_send_hidden",))
    own = api.run_case(case, out=tmp_path, run_id="own", options=RunOptions(capture=edges)).bundle
    options = RunOptions(faults=("rope-factor-missing",), capture=edges)
    bad = api.run_case(case, out=tmp_path, run_id="bad", options=options).bundle
    first = api.diff_runs(own, bad).first
    assert first is not None and first.name == "boundary_send_hidden#1"
    found = api.explain_runs(own, bad)
    assert found.name == first.name
    assert "the target's boundary_send_hidden#1" in explanation_report(found).headline.lower()
    assert found.baseline_differing > 0
    assert "rope-factor-missing" in [each.fault for each in found.best]


GEMMA4 = "synthetic:gemma4-tiny?layers=6"


@pytest.mark.parametrize(
    ("model", "prompt", "said"),
    [
        (GEMMA4, PromptSpec(random=36, seed=3), f"other models, {CASE.model} against {GEMMA4}"),
        (CASE.model, PromptSpec(random=36, seed=4), "session 0 has other prompts"),
        (CASE.model, PromptSpec(random=40, seed=3), "session 0 has other prompts"),
    ],
)
@pytest.mark.parametrize("chunks", [(20, 16), (35, 1)])
def test_runs_of_other_things_are_told_first(
    folder: Path, tmp_path: Path, model: str, prompt: PromptSpec, said: str, chunks
) -> None:
    """Whether or not their steps could be joined without a floor."""
    left = (prompt.random or 0) - sum(chunks)
    own = (*chunks, left) if left else chunks
    session = msgspec.structs.replace(CASE.sessions[0], prompt=prompt, chunks=own)
    case = msgspec.structs.replace(CASE, sessions=(session,), model=model)
    target = api.run_case(case, out=tmp_path).bundle
    with pytest.raises(IncomparableError, match=re.escape(said)) as raised:
        api.explain_runs(folder / "own", target)
    assert "floor" not in f"{raised.value.message} {raised.value.hint}"


def test_other_paths_may_lead_to_one_model() -> None:
    ours = made.manifest(model="gguf:/a/gemma.gguf")
    check_same_subject(ours, made.manifest(model="/b/gemma"))
    with pytest.raises(IncomparableError, match="of 12 and of 11 layers"):
        check_same_subject(ours, made.manifest(model="/b/gemma", num_layers=11))


def test_a_bundle_that_is_none(folder: Path) -> None:
    with pytest.raises(BundleError):
        api.explain_runs(folder / "own", folder / "nothing")


@pytest.mark.parametrize("measured", [False, True])
def test_a_row_that_changed_after_it_was_written_is_explained_where_it_is_read(
    folder: Path, measured: bool
) -> None:
    """The step that wrote the row shows it as it has to be; a later one does not."""
    target = faulty(folder, "shift-with-global-base")
    floor = folder / "floor.json" if measured else None
    found = api.explain_runs(folder / "own", target, floor=floor)
    assert (found.name, found.step) == ("L0_kv_slice_post_write", 2)
    assert [(each.fault, each.fit) for each in found.best] == [("shift-with-global-base", "exact")]
    assert found.baseline_differing > 0


def test_another_engines_step_is_not_the_baselines(folder: Path) -> None:
    """Its one chunk reaches rows that the baseline's case computes in a later step."""
    whole = msgspec.structs.replace(
        CASE, sessions=(msgspec.structs.replace(CASE.sessions[0], chunks=(36,)),)
    )
    options = RunOptions(faults=("window-one-too-large",))
    ran = open_bundle(api.run_case(whole, out=folder, run_id="whole", options=options).bundle)
    with BundleWriter(folder / "elsewhere") as writer:
        for step in ran.manifest.steps:
            for record in ran.records:
                if record.step == step.index:
                    data = np.ascontiguousarray(ran.tensor(record)).reshape(-1).view(np.uint8)
                    writer.add(record, data.data)
            writer.end_step()
        said = msgspec.structs.asdict(ran.manifest)
        for name in ("schema_version", "run_id", "num_records", "files", "seal", "created"):
            said.pop(name)
        said["backend"] = msgspec.structs.replace(ran.manifest.backend, engine="elsewhere")
        writer.finish(**said)
    searches: list[int] = []
    found = api.explain_runs(
        folder / "own",
        folder / "elsewhere",
        floor=folder / "floor.json",
        progress=lambda what, done, total: searches.append(done == total > 1),
    )
    assert sum(searches) == 1  # not one more for every boundary whose bytes are another engine's
    assert (found.name, found.step) == ("L0_attention_output", 0)
    assert "window-one-too-large" in [each.fault for each in found.best]  # rows of a prompt alone
    assert found.baseline_differing > 0


def test_a_baseline_that_captured_less_needs_no_floor(folder: Path) -> None:
    """The target parts from its healthy run at slots, which the baseline has not."""
    options = RunOptions(capture=CaptureOptions(level=Level.BOUNDARY))
    api.run_case(CASE, out=folder, run_id="edges", options=options)
    found = api.explain_runs(folder / "edges", faulty(folder, "skip-swa-allocation"))
    assert found.name == "swa_slots"
    assert "skip-swa-allocation" in [each.fault for each in found.best]


def test_a_floor_does_not_judge_digests(folder: Path) -> None:
    options = RunOptions(faults=("window-one-too-large",), capture=CaptureOptions(store="digest"))
    target = api.run_case(CASE, out=folder, run_id="unjudged", options=options).bundle
    with pytest.raises(IncomparableError, match="digests only") as raised:
        api.explain_runs(folder / "own", target, floor=folder / "floor.json")
    assert "leave out --floor" in (raised.value.hint or "")


def test_a_healthy_target_is_said_to_be_one(folder: Path) -> None:
    bad = faulty(folder, "window-one-too-large")
    swapped = api.explain_runs(bad, folder / "own")
    assert (swapped.best, swapped.baseline_differing) == ((), 0)
    assert "a healthy run does" in explanation_report(swapped).headline
    assert "a healthy run" not in explanation_report(api.explain_runs(folder / "own", bad)).headline


def test_an_import_does_not_say_what_was_run(folder: Path) -> None:
    """An import says which engine it is of, and that may be this one."""
    for name, run in (("own", folder / "own"), ("bad", faulty(folder, "window-one-too-large"))):
        dump, made = folder / f"{name}-dump", folder / f"{name}-i"
        api.export_bundle(run, dump)
        api.import_foreign("safetensors", dump, map_name="swarepro", out=made)
    found = api.explain_runs(folder / "own", folder / "bad-i")
    assert "window-one-too-large" in [each.fault for each in found.best]
    assert found.best[0].fit == "exact"
    with pytest.raises(IncomparableError, match="neither bundle says which case"):
        api.explain_runs(folder / "own-i", folder / "bad-i")
