"""Whole tiny runs on the Triton routes, interpreted, against the eager route.

Tolerances: in float32 both sides sum in other orders, on values of order one (1e-4). In bfloat16 a
last bit (2^-9) that falls the other way grows from layer to layer: 4 % of relative L2 was seen
after six layers, and 10 % is allowed; the founding defect gives more than 100 %.
"""

import os
from dataclasses import replace
from importlib.util import find_spec

import msgspec
import pytest

from swarepro import api
from swarepro.backend import Backend
from swarepro.bundle.read import open_bundle
from swarepro.case import CaseSpec, PromptSpec, SessionSpec
from swarepro.checkpoint import open_checkpoint
from swarepro.compare.types import Tolerance
from swarepro.errors import BackendError, UsageError
from swarepro.options import CaptureOptions, RunOptions
from swarepro.runtime.routes import ROUTE_CODES
from swarepro.runtime.routes.launches import describe_launches

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")

BF16_RELATIVE_L2 = 0.1
FP32 = Tolerance(atol=1e-4, rtol=1e-4)
SESSION = SessionSpec(prompt=PromptSpec(random=19, seed=1), chunks=(16, 3), decode=3)
SHORT = msgspec.structs.replace(SESSION, decode=0)


def case(model: str, session=SESSION, dtype="fp32") -> CaseSpec:
    return CaseSpec(
        name="tiny",
        model=f"synthetic:{model}",
        dtype=dtype,
        sessions=(session,),
        capacity=32,
    )


def worst_relative_l2(baseline, target) -> float:
    """Over all value and state boundaries; the tolerance only makes all of them be opened."""
    found = api.diff_runs(baseline, target, tolerance=Tolerance(atol=1e9))
    return max(
        b.numbers.relative_l2 or 0.0
        for b in found.boundaries
        if b.numbers is not None and b.kind != "metadata"
    )


@pytest.mark.parametrize("model", ["gemma4-tiny", "gemma3-tiny", "gemma2-tiny?layers=4"])
@pytest.mark.parametrize("route", ["triton-split", "triton-paged"])
def test_every_boundary_matches_the_eager_route(tmp_path, model, route):
    eager = api.run_case(case(model), out=tmp_path, options=RunOptions(route="eager"))
    triton = api.run_case(case(model), out=tmp_path, options=RunOptions(route=route))
    found = api.diff_runs(eager.bundle, triton.bundle, tolerance=FP32)
    assert found.verdict == "WITHIN_TOLERANCE"
    assert not found.only_baseline
    assert not found.only_target
    assert found.skipped == ("route",)
    assert found.compared == eager.manifest.num_records - len(eager.manifest.steps)
    assert max(b.numbers.relative_l2 or 0.0 for b in found.boundaries) < 1e-4
    assert triton.manifest.tokens == eager.manifest.tokens
    # The control: the tolerance sees the founding defect.
    broken = api.run_case(
        case(model),
        out=tmp_path,
        run_id="broken",
        options=RunOptions(route="eager", faults=("skip-swa-allocation",)),
    )
    wrong = api.diff_runs(broken.bundle, triton.bundle, tolerance=FP32)
    assert wrong.verdict == "DIVERGED"


@pytest.mark.parametrize("route", ["triton-split", "triton-paged"])
def test_bf16_runs_and_says_which_kernels_ran(tmp_path, route):
    bundle = open_bundle(
        api.run_case(
            case("gemma4-tiny?layers=6", SHORT, "bf16"),
            out=tmp_path,
            options=RunOptions(route=route),
        ).bundle
    )
    backend = bundle.manifest.backend
    assert (backend.triton, backend.route, backend.schedule) == ("interpret", route, "program")
    assert {entry["head_dim"] for entry in backend.launches["paged_prefill"]} == {16, 32}
    assert backend.launches["store_kv"]
    wanted = "triton-paged" if route == "triton-paged" else "triton-split-prefill"
    codes = [bundle.tensor(r) for r in bundle.records if r.name == "route"]
    assert {int(code) for array in codes for code in array} == {ROUTE_CODES[wanted]}
    spec = case("gemma4-tiny?layers=6", SHORT, "bf16")
    eager = api.run_case(spec, out=tmp_path, run_id="eager")
    assert eager.manifest.backend.launches == {}
    unpatched = RunOptions(faults=("skip-swa-allocation",))
    broken = api.run_case(spec, out=tmp_path, run_id="broken", options=unpatched)
    assert worst_relative_l2(eager.bundle, bundle.path) < BF16_RELATIVE_L2
    assert worst_relative_l2(broken.bundle, bundle.path) > 1.0


@pytest.mark.parametrize("route", ["triton-split", "triton-paged"])
def test_determinism_finds_the_defect_and_only_the_defect(route):
    """Every repeat permutes the program order of every launch."""
    spec = case("gemma4-tiny?layers=2", SHORT, "bf16")
    unpatched = RunOptions(route=route, faults=("skip-swa-allocation",))
    found = api.repeat_case(spec, repeats=3, options=unpatched).determinism
    assert (found.earliest_varying.step, found.earliest_varying.name) == (
        0,
        "L0_kv_slice_post_write",
    )
    # The paged route reads the chunk's own rows from the pool, too: it is harmed at once.
    harmed = (0 if route == "triton-paged" else 1, "L0_attention_output")
    assert (found.first_value_varying.step, found.first_value_varying.name) == harmed
    patched = api.repeat_case(spec, repeats=3, options=RunOptions(route=route)).determinism
    assert patched.verdict == "DETERMINISTIC"


def test_a_correct_run_does_not_depend_on_the_orders(tmp_path):
    """That they reach every launch is shown in test_launch_orders.py."""
    spec = case("gemma4-tiny?layers=2", SHORT, "bf16")
    options = [
        RunOptions(route="triton-split", schedule=name, capture=CaptureOptions(store="digest"))
        for name in ("program", "seeded:1", "seeded:2")
    ]
    bundles = [
        api.run_case(spec, out=tmp_path, run_id=str(i), options=option).bundle
        for i, option in enumerate(options)
    ]
    for other in bundles[1:]:
        assert api.diff_runs(bundles[0], other).verdict == "IDENTICAL"


def test_a_head_that_fits_no_launch_is_refused_before_the_run(tmp_path):
    config = open_checkpoint("synthetic:gemma4-tiny").config
    wide = replace(config, layers=tuple(replace(x, head_dim=528) for x in config.layers))
    backend = Backend(device="cpu", triton="interpret")
    backend.activate()
    with pytest.raises(BackendError, match=r"head_dim 528 has no .* launch configuration"):
        describe_launches(wide, dtype="bf16", backend=backend)
    assert describe_launches(config, dtype="bf16", backend=backend)["paged_decode"]


def test_hardware_order_needs_compiled_kernels(tmp_path):
    with pytest.raises(UsageError, match="cannot be had where kernels are not compiled"):
        api.run_case(
            case("gemma4-tiny"),
            out=tmp_path,
            options=RunOptions(route="triton-split", schedule="hardware"),
        )


def test_one_process_has_one_mode():
    Backend(device="cpu", triton="interpret").activate()
    assert os.environ["TRITON_INTERPRET"] == "1"
    import triton  # noqa: F401

    with pytest.raises(BackendError, match="loaded Triton for the other mode"):
        Backend(device="cuda", triton="compiled").activate()
    assert os.environ["TRITON_INTERPRET"] == "1"


def test_the_eager_route_leaves_the_mode_open():
    before = os.environ.get("TRITON_INTERPRET")
    Backend(device="cpu", triton="off").activate()
    assert os.environ.get("TRITON_INTERPRET") == before
