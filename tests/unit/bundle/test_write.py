import errno
import os
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import numpy as np
import pytest
from safetensors import safe_open

from swarepro import points
from swarepro.bundle import write as write_module
from swarepro.bundle.read import open_bundle
from swarepro.bundle.write import BundleWriter
from swarepro.errors import BundleError
from tests.unit.bundle.factory import ROOT, Run, item, small_run, spans, stages


def test_what_was_written_is_read_back(tmp_path):
    run = small_run()
    bundle = run.open(tmp_path / "a")
    assert bundle.manifest.num_records == len(bundle.records) == len(run.items) == 14
    assert bundle.num_stored == 12
    for index, (record, (wanted, array, store)) in enumerate(
        zip(bundle.records, run.items, strict=True)
    ):
        assert record == msgspec.structs.replace(wanted, index=index, file=record.file)
        assert (record.file is not None) == store
        if store:
            np.testing.assert_array_equal(bundle.tensor(record), array)
            assert bundle.tensor(record).shape == array.shape
    assert bundle.verify() == 12
    names = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*"))
    assert names == [
        "a/manifest.json",
        "a/records.jsonl",
        "a/tensors/step-0000.safetensors",
        "a/tensors/step-0001.safetensors",
    ]


def test_the_safetensors_library_reads_our_files(tmp_path):
    run = small_run()
    bundle = run.open(tmp_path / "a")
    with safe_open(tmp_path / "a/tensors/step-0000.safetensors", framework="np") as file:
        keys = set(file.keys())
        np.testing.assert_array_equal(file.get_tensor("L0_o_proj"), run.items[4][1])
    stored = {record.key for record in bundle.records if record.file and record.step == 0}
    assert keys == stored


def test_tensors_are_aligned_to_their_elements(tmp_path):
    bundle = small_run().open(tmp_path / "a")
    for record in bundle.records:
        if record.file:
            assert bundle.tensor(record).flags.aligned


def test_an_existing_directory_is_refused_and_left_alone(tmp_path):
    path = small_run().write(tmp_path / "a")
    before = (path / "records.jsonl").read_bytes()
    with pytest.raises(BundleError, match="exists already") as error, BundleWriter(path):
        pass
    assert error.value.hint
    assert (path / "records.jsonl").read_bytes() == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError("x"), OSError(5, "elsewhere")])
def test_any_exception_removes_the_directory(tmp_path, error):
    record, array, _ = small_run().items[0]
    with pytest.raises(type(error) if isinstance(error, Exception) else error):  # noqa: SIM117
        with BundleWriter(tmp_path / "a") as writer:
            writer.add(record, array.data)
            writer.end_step()
            assert (tmp_path / "a/tensors").is_dir()
            raise error
    assert list(tmp_path.iterdir()) == []


def test_leaving_without_finish_is_an_internal_error(tmp_path):
    with pytest.raises(RuntimeError, match="without finish"), BundleWriter(tmp_path / "a"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path, monkeypatch):
    def full(file, tensors):
        file.write(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(write_module, "write_tensors", full)
    with pytest.raises(BundleError, match=r"step-0000.*no space left on device") as error:
        small_run().write(tmp_path / "a")
    assert error.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_real_file_size_limit_leaves_nothing(tmp_path):
    script = textwrap.dedent(
        """
        import resource, sys
        from pathlib import Path
        import numpy as np
        from swarepro import points
        from swarepro.errors import BundleError
        from tests.unit.bundle.factory import Run, item
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        run = Run(items=[item(points.EMBEDDING_OUTPUT, np.zeros((4, 100_000)))])
        try:
            run.write(Path(sys.argv[1]))
        except BundleError as error:
            print(error.message)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "a")],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert "file too large" in done.stdout
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 100_000
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "left"), [(signal.SIGINT, False), (signal.SIGKILL, True)])
def test_an_interrupted_run_leaves_nothing_and_a_killed_one_is_refused(tmp_path, number, left):
    script = textwrap.dedent(
        """
        import sys, time
        from pathlib import Path
        from swarepro.bundle.write import BundleWriter
        from tests.unit.bundle.factory import small_run
        with BundleWriter(Path(sys.argv[1])) as writer:
            for record, array, store in small_run().items[:7]:
                writer.add(record, array.data)
            writer.end_step()
            print("ready", flush=True)
            time.sleep(60)
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "a")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        text=True,
        # A suite that was started in the background ignores SIGINT, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, number)
        process.wait(timeout=30)
    assert (tmp_path / "a").exists() == left
    if left:
        with pytest.raises(BundleError, match="did not finish"):
            open_bundle(tmp_path / "a")


def test_records_out_of_execution_order_are_an_internal_error(tmp_path):
    first, second = small_run().items[3:5]
    with (
        pytest.raises(RuntimeError, match="later boundary"),
        BundleWriter(tmp_path / "a") as writer,
    ):
        writer.add(second[0])
        writer.add(first[0])
    assert list(tmp_path.iterdir()) == []


def test_the_same_record_twice_is_an_internal_error(tmp_path):
    record = small_run().items[0][0]
    with pytest.raises(RuntimeError), BundleWriter(tmp_path / "a") as writer:
        writer.add(record)
        writer.add(record)


def test_a_wrong_occurrence_is_an_internal_error(tmp_path):
    record = small_run().items[0][0]
    with (
        pytest.raises(RuntimeError, match="occurrence 1 where 0"),
        BundleWriter(tmp_path / "a") as writer,
    ):
        writer.add(msgspec.structs.replace(record, occurrence=1))


def test_bytes_that_do_not_fit_are_an_internal_error(tmp_path):
    record, array, _ = small_run().items[0]
    with (
        pytest.raises(RuntimeError, match="16 bytes"),
        BundleWriter(tmp_path / "a") as writer,
    ):
        writer.add(record, array[:2].data)


def test_a_step_that_was_not_ended_is_an_internal_error(tmp_path):
    with (
        pytest.raises(RuntimeError, match="not ended"),
        BundleWriter(tmp_path / "a") as writer,
    ):
        for record, _, _ in small_run().items:
            writer.add(record)


def test_stages_share_a_name_by_occurrence(tmp_path):
    items = [
        item(points.INPUT_IDS, np.arange(4), dtype="I64", stage=stage, occurrence=stage)
        for stage in (0, 1)
    ]
    # Stage 0 runs completely before stage 1.
    items.insert(1, item(points.AFTER_LAYER, np.ones((4, 2)), layer=0, stage=0))
    bundle = Run(items=items, stages=stages((0, 1), (1, 2))).open(tmp_path / "a")
    assert [record.key for record in bundle.records] == [
        "input_ids",
        "after_layer_0",
        "input_ids#1",
    ]
    np.testing.assert_array_equal(bundle.tensor(bundle.records[2]), np.arange(4))


def test_a_step_without_records_writes_nothing(tmp_path):
    run = Run(items=[small_run().items[0]], steps=spans((0, 3), (3, 4)))
    bundle = run.open(tmp_path / "a")
    assert [entry.path for entry in bundle.manifest.files] == [
        "records.jsonl",
        "tensors/step-0000.safetensors",
    ]


def test_an_unwritable_parent_is_a_bundle_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BundleError, match="cannot write"):
        small_run().write(tmp_path / "file" / "a")


def test_a_decode_step_is_buffered_without_copies(tmp_path):
    record, array, _ = small_run().items[0]
    with pytest.raises(KeyboardInterrupt), BundleWriter(Path(tmp_path / "a")) as writer:
        writer.add(record, array.data)
        assert np.shares_memory(np.asarray(writer._stored[0].data), array)
        raise KeyboardInterrupt
