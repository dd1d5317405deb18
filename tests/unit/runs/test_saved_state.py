"""A saved state: another process goes on from it with the same bytes, and nothing is executed."""

import json
import os
import subprocess
import sys

import msgspec
import pytest
import torch

from swarepro import api
from swarepro.bundle.digest import digest_bytes
from swarepro.capture import MemorySink
from swarepro.case import convert_case
from swarepro.errors import BundleError, UsageError
from swarepro.options import RunOptions, no_progress
from swarepro.runs.once import execution
from swarepro.runs.prepare import prepare
from swarepro.runs.saved_state import SavedState, adopt_state, read_state, save_state
from tests.unit.runs.test_replay import SCRIPT, UNPATCHED


def saved_at(folder, case, step, options, schedule="seeded:3"):
    """Run to ``step``, save, go on; return what the rest gave."""
    prepared = prepare(case, options, copies=0, progress=no_progress)
    run = execution(prepared, MemorySink([]), schedule=schedule)
    run.run_steps(slice(0, step))
    save_state(folder, run, prepared, step=step, schedule=schedule, prefix_runs=3)
    return prepared, rest_of(run, step)


def rest_of(run, step):
    sink = MemorySink([])
    run.use("seeded:9", sink)
    run.run_steps(slice(step, None))
    digests = [(r.step, r.name, r.session, r.digest) for r in sink.records]
    kinds = [(v.kind, v.step, v.layer, v.message) for v in run.outcome.violations]
    return digests, run.outcome.tokens, run.accounts(), kinds


@pytest.mark.parametrize("step", range(5))
@pytest.mark.parametrize(
    "faults", [(), ("cached-translation",), ("shift-with-global-base",), ("finish-leaks-slots",)]
)
def test_another_execution_goes_on_with_the_same_bytes(tmp_path, step, faults):
    """Pools, books, the shadow and what a fault remembers, under eviction, keep and reuse."""
    case = convert_case(SCRIPT, source="test")
    prepared, wanted = saved_at(tmp_path / "s", case, step, RunOptions(faults=faults))
    other = execution(prepared, MemorySink([]), schedule="seeded:3")
    saved = read_state(tmp_path / "s")
    adopt_state(tmp_path / "s", saved, other, route=prepared.route)
    assert other.state() == saved.digests
    assert rest_of(other, step) == wanted


def test_another_process_replays_it(tmp_path):
    """What varies is what varies in the process that saved it, value by value."""
    folder = tmp_path / "state"
    here = api.replay_case(
        api.find_case("anchor-a"), step=1, trials=3, options=UNPATCHED, save=folder
    )
    command = [sys.executable, "-m", "swarepro", "replay", "--from", str(folder), "-n", "3"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    ran = subprocess.run(
        [*command, "--json"], capture_output=True, text=True, check=False, env=environment
    )
    assert ran.returncode == 1, ran.stderr
    there = json.loads(ran.stdout)
    assert there["case"] == "anchor-a"
    assert there["step"] == 1
    assert there["prefix_runs"] == 0
    assert there["found"]["modal_repeat"] == here.determinism.modal_repeat
    wanted = {(p.stage, p.name): p.modal for p in here.determinism.points}
    again = api.replay_saved(folder, trials=3)
    assert {(p.stage, p.name): p.modal for p in again.determinism.points} == wanted
    assert here.saved == again.saved == folder


def test_another_route_replays_it(tmp_path):
    """The sentinel's row is as it was saved, whoever reads it."""
    folder = tmp_path / "state"
    api.replay_case(api.find_case("anchor-a"), step=1, trials=2, options=UNPATCHED, save=folder)
    found = api.replay_saved(folder, trials=3, options=RunOptions(route="eager-paged"))
    assert found.determinism.verdict == "NONDETERMINISTIC"
    assert found.determinism.earliest_varying.name == "L0_kv_slice_post_write"
    route = {p.name: p.modal for p in found.determinism.points}["route"]
    own = api.replay_saved(folder, trials=3).determinism
    assert {p.name: p.modal for p in own.points}["route"] != route


def test_patched_it_is_deterministic_and_ownership_is_whole(tmp_path):
    folder = tmp_path / "state"
    api.replay_case(api.find_case("anchor-a"), step=1, trials=2, save=folder)
    found = api.replay_saved(folder, trials=2)
    assert found.determinism.verdict == "DETERMINISTIC"
    assert not [v for entry in found.ownership for v in entry.violations]


def test_nothing_is_saved_where_the_prefix_varies(tmp_path):
    case = api.find_case("anchor-a")
    session = msgspec.structs.replace(case.sessions[0], decode=1)
    case = msgspec.structs.replace(case, sessions=(session,))
    folder = tmp_path / "state"
    found = api.replay_case(case, step=2, trials=2, options=UNPATCHED, save=folder)
    assert found.varying_outputs
    assert found.saved is None
    assert list(tmp_path.iterdir()) == []


def test_it_is_never_overwritten(tmp_path):
    (tmp_path / "state").mkdir()
    with pytest.raises(BundleError, match="exists already"):
        saved_at(tmp_path / "state", api.find_case("control"), 0, RunOptions())
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


@pytest.fixture
def saved(tmp_path):
    saved_at(tmp_path / "state", api.find_case("anchor-a"), 1, RunOptions())
    return tmp_path / "state"


@pytest.mark.parametrize("name", ["state.json", "state.safetensors"])
def test_a_changed_byte_is_refused(saved, name):
    path = saved / name
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    with pytest.raises(BundleError, match=name.replace(".", r"\.")):
        api.replay_saved(saved, trials=2)


def resealed(saved, **changes):
    """Change fields and seal the file again, as somebody would who wants to be believed."""
    path = saved / "state.json"
    state = msgspec.json.decode(path.read_bytes(), type=SavedState)
    state = msgspec.structs.replace(state, **changes, seal="")
    seal = digest_bytes(msgspec.json.encode(state))
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(state, seal=seal)))


@pytest.mark.parametrize(
    "root",
    [
        {"object": "os:system", "id": 0, "fields": {}},
        {"object": "swarepro.api:Path", "id": 0, "fields": {}},
        {"object": "swarepro.bundle.write:BundleWriter", "id": 0, "fields": {}},
        {"enum": "subprocess:Popen", "value": ["touch", "x"]},
        {"tuple": []},
        {"same": 7},
        {"tensor": 10**6},
        {"shared": -99},
        {"what": 1},
        None,
        7,
    ],
    ids=str,
)
def test_a_root_that_is_no_state_is_refused(saved, root):
    resealed(saved, root=root)
    with pytest.raises(BundleError):
        api.replay_saved(saved, trials=2)


def test_an_edited_table_is_refused(saved):
    """A field that the digests do not bear out, sealed or not."""
    state = msgspec.json.decode((saved / "state.json").read_bytes(), type=SavedState)
    text = msgspec.json.encode(state.root).decode()
    assert '"allocated":64' in text
    for other in ('"allocated":63', '"allocated":"x"', '"allocated":null'):
        resealed(saved, root=json.loads(text.replace('"allocated":64', other)))
        with pytest.raises(BundleError, match="state"):
            api.replay_saved(saved, trials=2)


@pytest.mark.parametrize(
    "changes",
    [
        {"prefix_runs": -5},
        {"step": -1},
        {"step": 9},
        {"num_tensors": 10**8},
        {"dtype": "fp32"},
        {"schedule": "bogus"},
        {"root": {"tuple": [{"tuple": []}]}},
    ],
    ids=str,
)
def test_fields_that_cannot_be_are_refused(saved, changes):
    if "root" in changes:
        node = None
        for _ in range(400):
            node = {"tuple": [node]}
        changes = {"root": node}
    resealed(saved, **changes)
    with pytest.raises((BundleError, UsageError)):
        api.replay_saved(saved, trials=2)


def test_a_state_of_other_faults_is_refused(saved):
    resealed(saved, faults=("cached-translation",))
    with pytest.raises(BundleError, match="faults"):
        api.replay_saved(saved, trials=2)


def test_digests_of_rows_must_be_of_the_route(saved):
    resealed(saved, algorithm="swd_128")
    with pytest.raises(UsageError, match="swd_128"):
        api.replay_saved(saved, trials=2)


def test_pools_of_another_shape_are_refused(saved):
    case = json.loads((saved / "state.json").read_bytes())["case"]
    resealed(saved, case={**case, "capacity": 256})
    with pytest.raises(BundleError, match="pool"):
        api.replay_saved(saved, trials=2)


def test_what_is_saved_is_a_copy(tmp_path):
    """Going on does not change it: the tensors are those of the moment."""
    prepared, _ = saved_at(tmp_path / "s", api.find_case("anchor-a"), 1, RunOptions())
    run = execution(prepared, MemorySink([]), schedule="seeded:3")
    run.run_steps(slice(0, 1))
    fresh = execution(prepared, MemorySink([]), schedule="seeded:3")
    adopt_state(tmp_path / "s", read_state(tmp_path / "s"), fresh, route=prepared.route)
    for name, pool in run.pools().items():
        assert torch.equal(pool.view(torch.int16), fresh.pools()[name].view(torch.int16))
