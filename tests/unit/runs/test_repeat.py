"""Repeats: in one process, in fresh ones, and the bundles that are kept."""

from types import SimpleNamespace

import pytest

from swarepro import api
from swarepro.bundle.read import open_bundle
from swarepro.case import CaseSpec, PromptSpec, SessionSpec
from swarepro.errors import BundleError, UsageError
from swarepro.options import CaptureOptions, RunOptions

CASE = CaseSpec(
    name="repeat",
    model="synthetic:gemma4-tiny",
    capacity=64,
    sessions=(SessionSpec(prompt=PromptSpec(random=20, seed=3), chunks=(16, 4)),),
)
UNPATCHED = RunOptions(faults=("skip-swa-allocation",))


def test_patched_is_deterministic_with_its_bound():
    result = api.repeat_case(CASE, repeats=3).determinism
    assert result.verdict == "DETERMINISTIC"
    assert result.earliest_varying is None
    assert result.deviating == ()
    assert result.rate_upper_bound == pytest.approx(1 - 0.05 ** (1 / 3))
    assert result.outputs_vary == ()


def test_unpatched_names_the_store_and_the_first_value():
    result = api.repeat_case(CASE, repeats=4, options=UNPATCHED).determinism
    assert result.verdict == "NONDETERMINISTIC"
    assert (result.earliest_varying.step, result.earliest_varying.name) == (
        0,
        "L0_kv_slice_post_write",
    )
    assert (result.first_value_varying.step, result.first_value_varying.name) == (
        1,
        "L0_attention_output",
    )
    assert result.outputs_vary == (1,)
    assert result.rate_upper_bound is None
    assert sum(result.earliest_varying.classes) == 4


def test_fresh_processes_find_the_same():
    here = api.repeat_case(CASE, repeats=2, options=UNPATCHED).determinism
    there = api.repeat_case(CASE, repeats=2, options=UNPATCHED, fresh_process=True).determinism
    assert there == here


@pytest.mark.parametrize("fresh", [True, False])
def test_fresh_means_a_process_for_each_repeat(monkeypatch, fresh):
    """What this process does to its own runtime, a fresh one does not see."""
    from swarepro.runtime.stage import Stage

    def broken(self, *arguments):
        raise RuntimeError("this process cannot run a stage")

    monkeypatch.setattr(Stage, "run", broken)
    if fresh:
        assert api.repeat_case(CASE, repeats=2, fresh_process=True).determinism.repeats == 2
    else:
        with pytest.raises(RuntimeError, match="cannot run a stage"):
            api.repeat_case(CASE, repeats=2)


def test_an_error_in_a_fresh_process_is_the_same_error():
    with pytest.raises(UsageError, match="no such fault") as caught:
        api.repeat_case(
            CASE, repeats=2, options=RunOptions(faults=("nothing",)), fresh_process=True
        )
    assert caught.value.hint


def test_keep_leaves_the_modal_and_one_deviating_bundle(tmp_path):
    result = api.repeat_case(CASE, repeats=4, options=UNPATCHED, keep=tmp_path)
    modal, deviating = result.kept
    assert sorted(tmp_path.iterdir()) == sorted(result.kept)
    assert modal.name == f"repeat-repeat-{result.determinism.modal_repeat:03d}"
    difference = api.diff_runs(modal, deviating)
    assert difference.first.name == "L0_kv_slice_post_write"
    assert difference.first.numbers is not None
    assert open_bundle(modal).manifest.backend.schedule.startswith("seeded:")


def test_keep_of_equal_repeats_is_one_bundle(tmp_path):
    result = api.repeat_case(CASE, repeats=2, keep=tmp_path)
    assert len(result.kept) == 1
    assert sorted(tmp_path.iterdir()) == list(result.kept)


def test_keep_refuses_to_overwrite_and_touches_nothing(tmp_path):
    existing = tmp_path / "repeat-repeat-001"
    existing.mkdir()
    (existing / "mine").write_text("mine")
    with pytest.raises(BundleError, match="exists already"):
        api.repeat_case(CASE, repeats=2, keep=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["repeat-repeat-001"]
    assert (existing / "mine").read_text() == "mine"


def test_keep_leaves_what_another_process_made(tmp_path, monkeypatch):
    """It appears between the first look and the end: the other's bundle stays, and it alone."""
    from swarepro.runs import repeat

    def run_late(prepared, folder, **rest):
        theirs = tmp_path / "repeat-repeat-000"
        theirs.mkdir(exist_ok=True)
        (theirs / "theirs").write_text("theirs")
        return write(prepared, folder, **rest)

    write = repeat.run_to_bundle
    monkeypatch.setattr(repeat, "run_to_bundle", run_late)
    with pytest.raises(BundleError, match="exists already"):
        api.repeat_case(CASE, repeats=3, keep=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["repeat-repeat-000"]
    assert (tmp_path / "repeat-repeat-000" / "theirs").read_text() == "theirs"


@pytest.mark.parametrize("fresh", [False, True])
def test_an_interrupt_keeps_nothing_not_even_what_is_whole(tmp_path, fresh):
    """The second repeat is under way, or its process ends it while the first one waits."""

    def interrupt(what, done, total):
        if done == 1:
            raise KeyboardInterrupt

    keep = tmp_path / "keep"
    with pytest.raises(KeyboardInterrupt):
        api.repeat_case(CASE, repeats=3, keep=keep, fresh_process=fresh, progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BundleError, match="cannot write") as caught:
        api.repeat_case(CASE, repeats=2, keep=tmp_path / "file" / "keep")
    assert "--keep" in caught.value.hint


def test_keep_leaves_nothing_when_a_repeat_fails(tmp_path):
    options = RunOptions(faults=("nothing",))
    with pytest.raises(UsageError):
        api.repeat_case(CASE, repeats=2, options=options, keep=tmp_path)
    assert not list(tmp_path.iterdir())


def test_keep_counts_all_bundles_against_the_budget(tmp_path):
    one = api.run_case(CASE, out=tmp_path / "one").bundle
    size = sum(path.stat().st_size for path in one.rglob("*") if path.is_file())
    options = RunOptions(max_bundle_bytes=2 * size)
    with pytest.raises(UsageError, match="4 bundles would take"):
        api.repeat_case(CASE, repeats=4, options=options, keep=tmp_path / "kept")


def test_one_repeat_cannot_vary():
    with pytest.raises(UsageError, match="1 repeats cannot vary"):
        api.repeat_case(CASE, repeats=1)


def test_capture_off_compares_the_outputs_alone():
    options = RunOptions(
        faults=("skip-swa-allocation",), capture=CaptureOptions(level="off", store="digest")
    )
    result = api.repeat_case(CASE, repeats=3, options=options).determinism
    assert [(b.step, b.name) for b in result.points] == [(0, "logits"), (1, "logits")]
    assert result.earliest_varying.name == "logits"
    assert result.outputs_vary == (1,)


@pytest.mark.parametrize(
    ("schedule", "expected"), [("program", "seeded:3"), ("hardware", "hardware")]
)
def test_the_hardware_orders_compiled_repeats(schedule, expected):
    from swarepro.runs.repeat import schedule_of

    assert schedule_of(SimpleNamespace(schedule=schedule), 3) == expected


def test_repeats_record_their_schedules(tmp_path):
    kept = api.repeat_case(CASE, repeats=3, options=UNPATCHED, keep=tmp_path).kept
    found = [open_bundle(path).manifest.backend.schedule for path in kept]
    assert found == [f"seeded:{int(path.name[-3:])}" for path in kept]
