import json
import os
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest

from swarepro import points
from swarepro.bundle.digest import digest_bytes
from swarepro.bundle.read import WINDOW_BYTES, open_bundle
from swarepro.bundle.schema import FileEntry, Manifest, TensorRecord
from swarepro.bundle.seal import sealed
from swarepro.errors import BundleError
from tests.unit.bundle.factory import Run, item, small_run, spans

STEP = "tensors/step-0000.safetensors"


@pytest.fixture
def path(tmp_path):
    return small_run().write(tmp_path / "a")


def load(path: Path) -> Manifest:
    return msgspec.json.decode((path / "manifest.json").read_bytes(), type=Manifest)


def store(path: Path, manifest: Manifest) -> None:
    (path / "manifest.json").write_bytes(msgspec.json.encode(sealed(manifest)))


def change_manifest(path: Path, **changes) -> None:
    store(path, msgspec.structs.replace(load(path), **changes))


def change_records(path: Path, change) -> None:
    """Rewrite the records (as dicts), with digest, size and count to match."""
    lines = [json.loads(line) for line in (path / "records.jsonl").read_bytes().splitlines()]
    lines = change(lines) or lines
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    (path / "records.jsonl").write_bytes(text)
    fix_files(path, num_records=len(lines))


def fix_files(path: Path, **changes) -> None:
    files = tuple(
        FileEntry(
            path=entry.path,
            num_bytes=(path / entry.path).stat().st_size,
            digest=digest_bytes((path / entry.path).read_bytes()) if entry.digest else None,
        )
        for entry in load(path).files
    )
    change_manifest(path, files=files, **changes)


def refused(path: Path, match: str) -> BundleError:
    with pytest.raises(BundleError, match=match) as caught:
        open_bundle(path).verify()
    assert caught.value.exit_code == 2
    return caught.value


def test_the_helpers_alone_change_nothing(path):
    before = open_bundle(path)
    change_records(path, lambda lines: None)
    assert open_bundle(path).records == before.records


def test_no_such_directory(tmp_path):
    refused(tmp_path / "none", "does not exist")


def test_not_a_directory(path):
    refused(path / "manifest.json", "is not a directory")


def test_no_manifest_is_an_incomplete_run(path):
    (path / "manifest.json").unlink()
    refused(path, "did not finish")


def test_a_folder_of_bundles_lists_them(path):
    assert "a" in refused(path.parent, "no manifest.json").hint


def test_an_empty_folder_is_no_bundle(tmp_path):
    assert refused(tmp_path, "no bundle").hint is None


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"schema_version": "1"}', b"{}"],
)
def test_a_manifest_that_is_none(path, text):
    (path / "manifest.json").write_bytes(text)
    refused(path, "not a manifest")


@pytest.mark.parametrize("version", [0, 3, 99, -1])
def test_an_unknown_version_is_named_before_anything_else(path, version):
    raw = json.loads((path / "manifest.json").read_bytes())
    raw.update(schema_version=version, something_new={"x": 1})
    (path / "manifest.json").write_text(json.dumps(raw))
    assert "reads 1, 2" in str(refused(path, f"unknown schema_version {version}"))


def test_an_unknown_field_of_the_manifest(path):
    raw = json.loads((path / "manifest.json").read_bytes())
    raw["extra"] = 1
    (path / "manifest.json").write_text(json.dumps(raw))
    refused(path, "unknown field `extra`")


def test_a_wrong_type_in_the_manifest(path):
    raw = json.loads((path / "manifest.json").read_bytes())
    raw["num_layers"] = "two"
    (path / "manifest.json").write_text(json.dumps(raw))
    refused(path, r"Expected `int`, got `str` - at `\$.num_layers`")


def test_an_edited_manifest_breaks_its_seal(path):
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text.replace("hand-made", "hand-mate"))
    refused(path, "seal")


def test_white_space_in_the_manifest_does_not_matter(path):
    raw = json.loads((path / "manifest.json").read_bytes())
    (path / "manifest.json").write_text(json.dumps(raw, indent=7))
    open_bundle(path)


@pytest.mark.parametrize("name", ["records.jsonl", STEP])
class TestFiles:
    def test_missing(self, path, name):
        (path / name).unlink()
        refused(path, f"{name} is missing")

    def test_cut(self, path, name):
        data = (path / name).read_bytes()
        (path / name).write_bytes(data[:-1])
        refused(path, f"{name} is cut")

    def test_longer(self, path, name):
        with (path / name).open("ab") as file:
            file.write(b"\n")
        refused(path, f"{name} is longer")

    def test_a_flipped_byte(self, path, name):
        data = bytearray((path / name).read_bytes())
        data[-5] ^= 1
        (path / name).write_bytes(data)
        refused(path, "digest")

    def test_a_pipe_does_not_block(self, path, name):
        (path / name).unlink()
        os.mkfifo(path / name)
        refused(path, "not a regular file")

    def test_a_link_that_leads_out(self, path, name):
        outside = path.parent / "outside"
        shutil.move(path / name, outside)
        (path / name).symlink_to(outside)
        refused(path, "leads out of the bundle")

    def test_a_link_loop(self, path, name):
        (path / name).unlink()
        (path / name).symlink_to(path / name)
        refused(path, "not a regular file")

    def test_a_link_inside_is_fine(self, path, name):
        shutil.move(path / name, path / "elsewhere")
        (path / name).symlink_to(path / "elsewhere")
        open_bundle(path).verify()


def test_a_flipped_tensor_byte_names_file_tensor_and_digests(path):
    data = bytearray((path / STEP).read_bytes())
    data[-1] ^= 128
    (path / STEP).write_bytes(data)
    bundle = open_bundle(path)  # tensors are checked when they are opened
    bad = [record for record in bundle.records if record.file == STEP]
    caught = None
    for record in bad:
        try:
            bundle.tensor(record)
        except BundleError as error:
            assert caught is None
            caught = error
            named = record
    assert STEP in caught.message
    assert repr(named.key) in caught.message
    assert named.digest in caught.message


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../outside.safetensors",
        "tensors/../../outside.safetensors",
        "tensors/x/y.safetensors",
        "tensors\\x.safetensors",
        "",
        "tensors/a\0.safetensors",
        "manifest.json",
    ],
)
def test_a_path_that_leaves_the_bundle(path, name):
    (path.parent / "outside.safetensors").write_bytes(b"x")
    files = (*load(path).files, FileEntry(path=name, num_bytes=1))
    change_manifest(path, files=files)
    refused(path, "no path that a bundle may name")


def test_the_manifest_itself_may_not_lead_out(path):
    shutil.move(path / "manifest.json", path.parent / "m.json")
    (path / "manifest.json").symlink_to(path.parent / "m.json")
    refused(path, "leads out")


def test_records_not_listed(path):
    change_manifest(path, files=load(path).files[1:])
    refused(path, "records.jsonl is not listed")


def test_a_file_listed_twice(path):
    change_manifest(path, files=load(path).files * 2)
    refused(path, "listed twice")


def test_a_wrong_number_of_records(path):
    change_manifest(path, num_records=13)
    refused(path, "14 records; the manifest says 13")


def edit(place, /, **changes):
    def change(lines):
        lines[place].update(changes)

    return change


def swap(lines):
    lines[3], lines[4] = lines[4], lines[3]
    for index, line in enumerate(lines):
        line["index"] = index


def duplicate(lines):
    lines.insert(1, dict(lines[0]))
    for index, line in enumerate(lines):
        line["index"] = index


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (edit(4, extra=1), "unknown field `extra`"),
        (edit(4, step="0"), "Expected `int`"),
        (edit(4, index=9), "index 9 where 4 is next"),
        (edit(4, point="L{layer}_o_prj"), "no such capture point"),
        (edit(4, name="L1_o_proj"), "is called 'L0_o_proj'"),
        (edit(4, layer=None), "of scope layer"),
        (edit(4, layer=2, name="L2_o_proj"), "no layer 2"),
        (edit(0, layer=0), "of scope step"),
        (edit(4, kind="state"), "is value with dims 'T E'"),
        (edit(4, dims=["T", "H"]), "is value with dims 'T E'"),
        (edit(4, shape=[9]), "does not fit dims"),
        (edit(4, shape=[-3, 3]), "does not fit dims"),
        (edit(4, dtype="F31"), "unknown dtype 'F31'"),
        (edit(4, digest="zz"), "not a digest"),
        (edit(4, stage=1), "no stage 1"),
        (edit(4, session=1), "no session 1"),
        (edit(13, step=2), "no step 2"),
        (edit(4, row_start=-1), "is no position"),
        (edit(4, file="tensors/step-0007.safetensors"), "does not list its file"),
        (edit(4, file="records.jsonl"), "no file for tensors"),
        (edit(4, file="tensors/step-0001.safetensors", dtype="F16"), "L0_o_proj.*is F32"),
        (edit(4, occurrence=1), "occurrence 1 where 0 is next"),
        (edit(4, shape=[1, 9]), r"its record says F32 \[1, 9\]"),
        (edit(4, dtype="I32"), "is F32"),
        (edit(4, file=None), "'L0_o_proj' has no record"),
        (edit(5, file=STEP), "'after_layer_0' is missing"),
        (swap, "not in execution order"),
        (duplicate, "occurrence 0 where 1 is next"),
        (lambda lines: [{"a": 1}], "not records"),
    ],
)
def test_a_record_that_lies(path, change, match):
    change_records(path, change)
    refused(path, match)


def test_records_that_are_not_json(path):
    (path / "records.jsonl").write_bytes(b"[" * 100_000)
    fix_files(path)
    refused(path, "not records")


def header(path: Path, change) -> None:
    """Rewrite the header of the first tensor file, as a dict."""
    data = (path / STEP).read_bytes()
    length = int.from_bytes(data[:8], "little")
    entries = json.loads(data[8 : 8 + length])
    text = change(entries)
    if text is None:
        text = json.dumps(entries).encode()
    (path / STEP).write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    fix_files(path)


def entry(key, **changes):
    return lambda entries: entries[key].update(changes)


def swap_offsets(entries):
    one, two = entries["embedding_output"], entries["L0_o_proj"]
    one["data_offsets"], two["data_offsets"] = two["data_offsets"], one["data_offsets"]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda entries: b"not json", "not a safetensors header"),
        (lambda entries: b"[" * 100_000, "not a safetensors header"),
        (lambda entries: b"{}", "tensors end at byte"),
        (lambda entries: entries.update(__metadata__={"a": "b"}), "not a safetensors header"),
        (entry("L0_o_proj", dtype="F31"), "unknown dtype"),
        (entry("L0_o_proj", dtype="I32"), "its record says F32"),
        (entry("L0_o_proj", shape=[3, 4]), "takes 48 bytes"),
        (entry("L0_o_proj", shape=[9, 1]), r"its record says F32 \[3, 3\]"),
        (entry("L0_o_proj", shape=[-3, -3]), "negative extent"),
        (entry("L0_o_proj", shape=[1 << 62, 1 << 62]), "takes"),
        (entry("L0_o_proj", data_offsets=[-36, 0]), "offsets -36:0"),
        (entry("L0_o_proj", data_offsets=[0, 36]), "overlaps|leaves a hole"),
        (entry("L0_o_proj", data_offsets=[10**9, 10**9 + 36]), "leaves a hole"),
        (swap_offsets, "takes"),
        (lambda entries: entries.update(more=entries["L0_o_proj"]), "overlaps"),
        (
            lambda entries: entries.update(renamed=entries.pop("L0_o_proj")),
            "'L0_o_proj' is missing",
        ),
    ],
)
def test_a_header_that_lies(path, change, match):
    header(path, change)
    refused(path, match)


@pytest.mark.parametrize("length", [2**64 - 1, 2**40, 100_000_000])
def test_an_absurd_header_length(path, length):
    data = (path / STEP).read_bytes()
    (path / STEP).write_bytes(length.to_bytes(8, "little") + data[8:])
    refused(path, "the header claims")


def test_a_tensor_file_of_a_few_bytes(path):
    (path / STEP).write_bytes(b"abc")
    fix_files(path)
    refused(path, "cut")


def test_a_file_cut_after_opening_is_an_error_and_no_signal(path):
    bundle = open_bundle(path)
    (path / STEP).write_bytes(b"")
    with pytest.raises(BundleError, match="cut since"):
        bundle.tensor(bundle.records[0])


def test_a_digest_only_tensor_says_how_to_get_it(path):
    bundle = open_bundle(path)
    with pytest.raises(BundleError, match="digest only") as caught:
        bundle.tensor(bundle.records[5])
    assert "--store tensor" in caught.value.hint


def test_an_empty_bundle_is_readable(tmp_path):
    bundle = Run(items=[]).open(tmp_path / "a")
    assert bundle.records == ()
    assert bundle.verify() == 0


def test_tensors_are_mapped_read_only_and_unmapped_with_their_view(path):
    bundle = open_bundle(path)
    view = bundle.tensor(bundle.records[4])
    assert not view.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        view[0, 0] = 1
    assert STEP in Path("/proc/self/maps").read_text()
    del view
    assert str(path / STEP) not in Path("/proc/self/maps").read_text()


def test_a_tensor_beyond_the_first_page(tmp_path):
    big = np.arange(100_000, dtype=np.float32).reshape(10, -1)
    run = Run(
        items=[
            item(points.EMBEDDING_OUTPUT, big, row_start=0),
            item(points.AFTER_LAYER, big + 1, layer=0),
            item(points.AFTER_LAYER, big + 2, layer=1),
        ],
        steps=spans((0, 10)),
    )
    bundle = run.open(tmp_path / "a")
    for add, record in enumerate(bundle.records):
        np.testing.assert_array_equal(bundle.tensor(record), big + add)


def test_unknown_fields_are_refused_in_every_on_disk_type():
    for struct in (Manifest, TensorRecord, FileEntry):
        assert struct.__struct_config__.forbid_unknown_fields


@pytest.mark.parametrize("place", [0, WINDOW_BYTES, -1])
def test_a_large_tensor_is_hashed_to_its_end(tmp_path, place):
    big = np.zeros((700, 1000), dtype=np.float32)
    run = Run(items=[item(points.EMBEDDING_OUTPUT, big)], steps=spans((0, 700)))
    bundle = run.open(tmp_path / "a")
    record = bundle.records[0]
    assert bundle.verify() == 1
    np.testing.assert_array_equal(bundle.rows(record, 699, 700), big[:1])
    file = tmp_path / "a" / STEP
    data = bytearray(file.read_bytes())
    data[place if place < 0 else len(data) - big.nbytes + place] ^= 1
    file.write_bytes(data)
    with pytest.raises(BundleError, match="has digest"):
        open_bundle(tmp_path / "a").verify()
