"""Running once: budgets, refusals before anything runs, and nothing left behind."""

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from swarepro import api
from swarepro.bundle.read import open_bundle
from swarepro.case import CaseSpec, PromptSpec, SessionSpec
from swarepro.errors import (
    BackendError,
    BundleError,
    CapacityError,
    CaseError,
    CheckpointError,
    UsageError,
)
from swarepro.options import CaptureOptions, RunOptions
from swarepro.points import Level

CASE = CaseSpec(
    name="once",
    model="synthetic:gemma4-tiny",
    capacity=64,
    sessions=(SessionSpec(prompt=PromptSpec(random=20, seed=3), chunk=16),),
)


def changed(**fields) -> CaseSpec:
    return msgspec.structs.replace(CASE, **fields)


def test_a_run_writes_a_bundle_that_says_what_ran(tmp_path):
    result = api.run_case(CASE, out=tmp_path, run_id="a")
    manifest = open_bundle(tmp_path / "a").manifest
    assert result.bundle == tmp_path / "a"
    assert manifest.case["sessions"][0]["prompt"] == {"random": 20, "seed": 3}
    assert [(s.phase, s.spans[0].start, s.spans[0].end) for s in manifest.steps] == [
        ("prefill", 0, 16),
        ("prefill", 16, 20),
    ]
    assert len(manifest.prompts[0]) == 20
    assert len(manifest.tokens[0]) == 1
    assert manifest.backend.route == "eager"
    (owner,) = manifest.ownership[0].owners
    assert owner.slots == tuple(range(1, 21))
    assert result.violations == 0


def test_unpatched_is_answered_by_ownership_in_one_run(tmp_path):
    result = api.run_case(CASE, out=tmp_path, options=RunOptions(faults=("skip-swa-allocation",)))
    full, sliding = result.manifest.ownership
    assert (full.group, full.violations) == ("full", ())
    violation = min(sliding.violations, key=lambda found: found.order)
    assert (violation.kind, violation.step) == ("sentinel-store", 0)
    assert violation.positions == tuple(range(16))
    assert (sliding.free, sliding.live, sliding.owners) == (64, 0, ())
    assert (full.free, full.live) == (44, 20)
    quiet = RunOptions(faults=("skip-swa-allocation",), ownership=False)
    unwatched = api.run_case(CASE, out=tmp_path, run_id="unwatched", options=quiet)
    assert not any(entry.violations for entry in unwatched.manifest.ownership)


REFUSED = [
    (changed(capacity=19), RunOptions(), CaseError, "20 prompt rows; the capacity is 19"),
    (
        changed(
            capacity=40_000, sessions=(SessionSpec(prompt=PromptSpec(random=20), decode=39_000),)
        ),
        RunOptions(),
        CaseError,
        "uses 39020 positions; the model's max_position_embeddings is",
    ),
    (changed(swa_capacity=18), RunOptions(), CapacityError, "needs 4 more slots and has 2 free"),
    (changed(stages="0:4,5:12"), RunOptions(), CaseError, "leave a hole"),
    (changed(model="synthetic:nothing"), RunOptions(), CheckpointError, "nothing"),
    (CASE, RunOptions(faults=("skip-swa-alocation",)), UsageError, "no such fault"),
    (CASE, RunOptions(schedule="random"), UsageError, "unknown schedule"),
    (CASE, RunOptions(route="egaer"), BackendError, "unknown route"),
    (CASE, RunOptions(device="tpu"), BackendError, "unknown device"),
    (CASE, RunOptions(device="cpu:5"), BackendError, "unknown device"),
    (changed(fault="skip-swa-alocation"), RunOptions(), UsageError, "no such fault"),
    (
        CASE,
        RunOptions(capture=CaptureOptions(points=("L12_o_proj",))),
        UsageError,
        "nothing would be captured: level op with points L12_o_proj",
    ),
    (
        CASE,
        RunOptions(capture=CaptureOptions(level=Level.BOUNDARY, points=("L0_o_proj",))),
        UsageError,
        "nothing would be captured",
    ),
    (
        changed(sessions=(SessionSpec(prompt=PromptSpec(random=10**6)),)),
        RunOptions(),
        CaseError,
        "1000000 prompt rows; the capacity is 64",
    ),
    (
        changed(model="synthetic:gemma-4-12b", capacity=10**6),
        RunOptions(),
        UsageError,
        r"would take .* GiB; this machine has",
    ),
    (CASE, RunOptions(max_bundle_bytes=10_000), UsageError, "the budget is"),
]


@pytest.mark.parametrize(("case", "options", "error", "message"), REFUSED)
def test_refused_by_name_and_nothing_left(tmp_path, case, options, error, message):
    with pytest.raises(error, match=message):
        api.run_case(case, out=tmp_path, options=options)
    assert not list(tmp_path.iterdir())


def test_an_existing_bundle_is_never_overwritten(tmp_path):
    api.run_case(CASE, out=tmp_path, run_id="a")
    before = (tmp_path / "a" / "manifest.json").read_bytes()
    with pytest.raises(BundleError, match="exists already"):
        api.run_case(CASE, out=tmp_path, run_id="a")
    assert (tmp_path / "a" / "manifest.json").read_bytes() == before


def test_off_still_records_the_last_boundary(tmp_path):
    options = RunOptions(capture=CaptureOptions(level=Level.OFF))
    bundle = open_bundle(api.run_case(CASE, out=tmp_path, options=options).bundle)
    assert [(r.step, r.name, r.file) for r in bundle.records] == [
        (0, "logits", None),
        (1, "logits", None),
    ]


def start_long_run(out: Path) -> subprocess.Popen:
    code = (
        "import msgspec, sys; from pathlib import Path; from swarepro import api;"
        "from swarepro.case import *;"
        "case = CaseSpec(name='long', model='synthetic:gemma4-tiny', capacity=2000, sessions=("
        "SessionSpec(prompt=PromptSpec(random=20), decode=1900),));"
        "api.run_case(case, out=Path(sys.argv[1]), run_id='a',"
        " options=api.RunOptions(max_bundle_bytes=10**12))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(out)],
        stderr=subprocess.PIPE,
        env={**os.environ},
        # A suite that was started in the background ignores SIGINT, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    lines = out / "a" / "records.jsonl"
    deadline = time.monotonic() + 120
    while not (lines.exists() and lines.stat().st_size):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline, "the run never began to write"
        time.sleep(0.02)
    return process


def test_an_interrupted_run_leaves_nothing(tmp_path):
    process = start_long_run(tmp_path)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert not (tmp_path / "a").exists()


def test_a_killed_run_is_refused_as_incomplete(tmp_path):
    process = start_long_run(tmp_path)
    process.kill()
    process.communicate(timeout=60)
    assert (tmp_path / "a").exists()
    with pytest.raises(BundleError, match="no manifest"):
        open_bundle(tmp_path / "a")


RESET_FAULTS = ("skip-reset", "reset-zeroes-free-list", "stale-mapping-survives-reset")


@pytest.mark.parametrize(
    "faults",
    list(itertools.permutations(RESET_FAULTS, 2)),
    ids="+".join,
)
def test_any_two_faults_of_a_reset_go_together(faults):
    """What eviction left is changed by the reset: in place, between two steps."""
    session = SessionSpec(prompt=PromptSpec(random=80, seed=1), chunks=(40, 40))
    case = changed(sessions=(session, session), capacity=192, swa_capacity=96, evict=True)
    result = api.watch_case(case, options=RunOptions(faults=faults))
    assert result.error is None or result.error.startswith("CapacityError")
    assert result.steps_done >= 3
    kinds = {found.kind for entry in result.ownership for found in entry.violations}
    assert kinds & {"live-after-reset", "free-of-sentinel", "stale-translation", "mapping-lost"}


def test_an_error_keeps_its_own_hint_beside_that_of_the_shadow(tmp_path):
    session = SessionSpec(prompt=PromptSpec(random=40, seed=1))
    case = changed(sessions=(session, session), capacity=64)
    with pytest.raises(CapacityError) as caught:
        api.run_case(case, out=tmp_path, options=RunOptions(faults=("skip-reset",)))
    own, _, broken = caught.value.hint.partition("; ")
    assert own == "raise the capacity, shorten the sessions, or finish one"
    assert broken.startswith("ownership was broken before, first by live-after-reset at step 1:")
