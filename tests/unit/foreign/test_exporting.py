"""A bundle, exported and read back by the shipped map, has the same bytes everywhere."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from swarepro import api
from swarepro.bundle.read import open_bundle
from swarepro.case import convert_case
from swarepro.errors import ForeignError, SwareproError
from swarepro.options import CaptureOptions, RunOptions

CASE = {
    "name": "exported",
    "model": "synthetic:gemma4-tiny",
    "capacity": 128,
    "page_size": 16,
    "stages": "0:6,6:12",
    "script": [
        {"rows": [{"session": 0, "prefill": 20}, {"session": 1, "prefill": 5}]},
        {"rows": [{"session": 1, "prefill": 4}, {"session": 0, "decode": True}]},
        {"finish": [0], "keep": True},
        {"reuse": {"session": 2, "of": 0, "rows": 16}},
        {"rows": [{"session": 2, "prefill": 4}]},
    ],
    "sessions": [
        {"prompt": {"random": 20, "seed": 1}},
        {"prompt": {"random": 9, "seed": 2}},
        {"prompt": {"random": 20, "seed": 1}},
    ],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run with batches, two stages, a reuse and every point."""
    out = tmp_path_factory.mktemp("runs")
    return api.run_case(convert_case(CASE, source="test"), out=out, run_id="run").bundle


def bring(source: Path, out: Path):
    return api.import_foreign("safetensors", source, map_name="swarepro", out=out)


def test_the_round_trip_gives_the_same_bundle(run, tmp_path):
    result = api.export_bundle(run, tmp_path / "plain")
    bring(tmp_path / "plain", tmp_path / "back")
    before, after = open_bundle(run), open_bundle(tmp_path / "back")
    assert result.num_tensors == len(before.records) == after.verify()
    assert after.records == before.records
    for step in range(3):
        name = f"tensors/step-{step:04d}.safetensors"
        assert (tmp_path / "back" / name).read_bytes() == (run / name).read_bytes()
    for field in (
        "steps",
        "stages",
        "prompts",
        "tokens",
        "num_layers",
        "model",
        "backend",
        "capture",
    ):
        assert getattr(after.manifest, field) == getattr(before.manifest, field)
    found = api.diff_runs(run, tmp_path / "back")
    assert found.verdict == "IDENTICAL"
    assert (found.only_baseline, found.only_target) == ((), ())


def test_slices_of_a_window_keep_their_positions(tmp_path):
    """Beyond the window a slice begins behind position 0; where, nothing in the dump says."""
    case = CASE | {"script": [], "sessions": [{"prompt": {"random": 70}, "chunks": [40, 30]}]}
    options = RunOptions(capture=CaptureOptions(points=("*kv_slice*",)))
    ran = api.run_case(convert_case(case, source="test"), out=tmp_path, run_id="r", options=options)
    api.export_bundle(ran.bundle, tmp_path / "plain")
    bring(tmp_path / "plain", tmp_path / "back")
    before, after = open_bundle(ran.bundle), open_bundle(tmp_path / "back")
    starts = {record.row_start for record in before.records if record.step == 1}
    assert min(starts) == 0 < max(starts)
    assert after.records == before.records


def test_other_programs_read_the_files(run, tmp_path):
    api.export_bundle(run, tmp_path / "plain")
    index = json.loads((tmp_path / "plain" / "index.json").read_text())
    first = load_file(tmp_path / "plain" / "step-0000.safetensors")
    listed = {x["key"] for x in index["tensors"] if x["file"] == "step-0000"}
    assert set(first) == listed
    assert first["input_ids"].tolist() == index["prompts"][0]


def test_a_changed_bit_is_found_after_the_round_trip(run, tmp_path):
    api.export_bundle(run, tmp_path / "plain")
    file = tmp_path / "plain" / "step-0001.safetensors"
    text = bytearray(file.read_bytes())
    text[-1] ^= 1
    file.write_bytes(text)
    bring(tmp_path / "plain", tmp_path / "back")
    assert api.diff_runs(run, tmp_path / "back").verdict == "DIVERGED"


def test_a_tensor_that_changed_after_the_run_is_not_exported(run, tmp_path):
    copy = tmp_path / "copy"
    (copy / "tensors").mkdir(parents=True)
    for path in run.rglob("*.*"):
        (copy / path.relative_to(run)).write_bytes(path.read_bytes())
    file = copy / "tensors" / "step-0000.safetensors"
    text = bytearray(file.read_bytes())
    text[-1] ^= 1
    file.write_bytes(text)
    with pytest.raises(SwareproError, match="its record says"):
        api.export_bundle(copy, tmp_path / "plain")
    assert not (tmp_path / "plain").exists()


def test_digests_alone_are_not_exported_and_say_so(tmp_path):
    case = convert_case(
        {
            "name": "digests",
            "model": "synthetic:gemma4-tiny",
            "sessions": [{"prompt": {"tokens": [2, 3]}}],
        },
        source="test",
    )
    options = RunOptions(capture=CaptureOptions(store="digest"))
    bundle = api.run_case(case, out=tmp_path, run_id="run", options=options).bundle
    with pytest.raises(ForeignError, match="stores no tensor"):
        api.export_bundle(bundle, tmp_path / "plain")
    assert not (tmp_path / "plain").exists()


def test_an_export_overwrites_nothing(run, tmp_path):
    (tmp_path / "plain").mkdir()
    with pytest.raises(ForeignError, match="exists already"):
        api.export_bundle(run, tmp_path / "plain")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda index: index["tensors"].pop(), "is not in index.json"),
        (lambda index: index["tensors"].append(index["tensors"][0]), "lists a tensor twice"),
        (lambda index: index["tensors"][0].update(key="x"), "is not in index.json"),
        (lambda index: index["tensors"][0].update(stage=9), "has no stage 9"),
        (
            lambda index: index["final_actions"].append({"kind": "finish", "session": 2**30}),
            "10,000 sessions",
        ),
        (lambda index: index["tensors"][0].update(session=7), "session 7 in step 0, which no step"),
        (lambda index: index["steps"].pop(0), "session 0 in step 0, which no step"),
        (lambda index: index.update(colour=1), "unknown field"),
        (lambda index: index.update(format="other/1"), "not an index"),
        (lambda index: index.update(num_layers=3), "no bundle can be made of it"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(change, why, run, tmp_path):
    api.export_bundle(run, tmp_path / "plain")
    path = tmp_path / "plain" / "index.json"
    index = json.loads(path.read_text())
    change(index)
    path.write_text(json.dumps(index))
    with pytest.raises(SwareproError, match=why):
        bring(tmp_path / "plain", tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_a_folder_without_an_index_is_refused(run, tmp_path):
    api.export_bundle(run, tmp_path / "plain")
    (tmp_path / "plain" / "index.json").unlink()
    with pytest.raises(ForeignError, match="is missing"):
        bring(tmp_path / "plain", tmp_path / "back")
