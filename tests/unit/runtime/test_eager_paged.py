"""The eager paged route: another legal attention, and what the founding defect does to it."""

import msgspec
import pytest
import torch

from swarepro import api
from swarepro.options import CaptureOptions, RunOptions
from swarepro.runtime.routes.table import ROUTES, other_route


def boundaries(tmp_path, name, *, route, faults=(), dtype="fp32", decode=0):
    case = api.find_case(name)
    session = msgspec.structs.replace(case.sessions[0], decode=decode)
    case = msgspec.structs.replace(case, dtype=dtype, sessions=(session,))
    options = RunOptions(route=route, faults=faults, capture=CaptureOptions(level="op"))
    made = api.run_case(case, out=tmp_path, run_id=f"{route}-{len(faults)}", options=options)
    from swarepro.bundle.read import open_bundle

    bundle = open_bundle(made.bundle)
    kept = [r for r in bundle.records if r.dtype == "F32" and "pre_write" not in r.name]
    return {
        (r.step, r.name, r.occurrence): torch.from_numpy(bundle.tensor(r).copy()).view(
            torch.float32
        )
        for r in kept
    }


def test_it_agrees_with_the_split_route(tmp_path):
    """fp32; only the order in which keys are added up differs: within 1e-4, as on Triton."""
    split = boundaries(tmp_path, "anchor-a", route="eager", decode=2)
    paged = boundaries(tmp_path, "anchor-a", route="eager-paged", decode=2)
    assert split.keys() == paged.keys()
    for key, wanted in split.items():
        torch.testing.assert_close(paged[key], wanted, rtol=1e-4, atol=1e-4)


def test_the_defect_harms_it_in_the_first_chunk(tmp_path):
    """It reads the chunk's own rows back from slot 0: the first chunk is wrong already."""
    right = boundaries(tmp_path, "anchor-a", route="eager-paged")
    wrong = boundaries(tmp_path, "anchor-a", route="eager-paged", faults=("skip-swa-allocation",))
    key = (0, "L0_attention_output", 0)
    assert not torch.allclose(right[key], wrong[key], rtol=1e-2, atol=1e-2)


def test_ownership_checks_its_own_rows():
    case = api.find_case("control")
    options = RunOptions(route="eager-paged", faults=("skip-swa-allocation",))
    kinds = {found.kind for found in api.watch_case(case, options=options).violations}
    assert kinds == {"sentinel-store", "sentinel-read"}
    options = RunOptions(route="eager-paged")
    assert api.watch_case(case, options=options).violations == ()


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_has_one_alternative_of_its_own_mode(route):
    other = other_route(route)
    assert other != route
    assert other_route(other) == route
    assert other.partition("-")[0] == route.partition("-")[0]
