"""npy, safetensors and digests: read as their own libraries read them, or refused."""

import io
import json
import os
import struct
import warnings
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from swarepro.bundle.digest import digest_bytes
from swarepro.errors import ForeignError
from swarepro.foreign import listing, sources
from swarepro.foreign.digest_lines import read_digest_file
from swarepro.foreign.listing import Listed, list_files
from swarepro.foreign.npy_files import read_npy_file
from swarepro.foreign.safetensors_files import read_safetensors_file
from swarepro.foreign.sources import read_source


def listed(path: Path) -> Listed:
    return Listed(path=path, name=path.stem)


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u4", "u2", "u1", "?"])
@pytest.mark.parametrize("order", "CF")
def test_npy_is_read_as_numpy_reads_it(dtype, order, tmp_path):
    array = np.asarray(np.arange(12).reshape(3, 4) % 2 * 7, dtype=dtype, order=order)
    path = tmp_path / "a.npy"
    np.save(path, array)
    (found,) = read_npy_file(listed(path))
    assert found.shape == (3, 4)
    assert np.ascontiguousarray(found.load()).tobytes() == np.load(path).tobytes()


@pytest.mark.parametrize("array", [np.float32(3), np.zeros((0, 4), "f4")], ids=["scalar", "empty"])
def test_npy_without_dimensions_or_elements(array, tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, array)
    (found,) = read_npy_file(listed(path))
    assert found.load().shape == np.shape(array)
    assert found.load().tobytes() == np.asarray(array).tobytes()


def npy(header: str, data: bytes = b"", *, version: bytes = b"\x01\x00") -> bytes:
    text = header.encode() + b" " * 10 + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + data


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (nan, 4)}"), "not an npy"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (float('nan'),)}"), "not an npy"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4)}"), "is no shape"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1.5,)}"), "not an npy"),
        (
            npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}"),
            "shape",
        ),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (9,)}", b"\0" * 8), "takes 36 byt"),
        (
            npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", b"\0" * 8),
            "takes 4 bytes",
        ),
        (
            npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", b"\x80\x02N."),
            "Python obj",
        ),
        (npy("{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", b"\0" * 4), "dtype is >f4"),
        (npy("{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", b"\0" * 8), "dtype is <c8"),
        (npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}"), "dtype is"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1L,)}", b"\0" * 4), "not an npy"),
        (npy("__import__('os').system('x')"), "not an npy"),
        (npy("[" * 5000), "not an npy"),
        (npy("{}", version=b"\x09\x00"), "not an npy"),
        (b"PK\x03\x04", "not an npy"),
        (b"", "not an npy"),
    ],
)
def test_npy_files_that_are_refused(text, why, tmp_path):
    path = tmp_path / "a.npy"
    path.write_bytes(text)
    with pytest.raises(ForeignError, match=why):
        list(read_npy_file(listed(path)))


def test_safetensors_of_the_library_with_metadata(tmp_path):
    path = tmp_path / "a.safetensors"
    tensors = {"x": np.arange(6, dtype="f4").reshape(2, 3), "y": np.zeros((0, 2), "f2")}
    safetensors.numpy.save_file(tensors, path, metadata={"format": "np"})
    found = {one.name: one for one in read_safetensors_file(listed(path))}
    assert set(found) == {"a:x", "a:y"}
    assert found["a:x"].load().tobytes() == tensors["x"].tobytes()
    assert found["a:y"].shape == (0, 2)


def header(text: str, data: bytes = b"", *, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text.encode() + data


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (header("{}", length=200 * 1000**2), "claims 200000000 bytes"),
        (header('{"x":{"dtype":"F32","shape":[NaN],"data_offsets":[0,4]}}', b"1234"), "header"),
        (header('{"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}', b"1234"), "negative"),
        (
            header('{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}', b"1234"),
            "takes 8 bytes",
        ),
        (
            header('{"x":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}', b"1234"),
            "unknown dtype",
        ),
        (header('{"__metadata__":{"a":1},"x":7}'), "not a safetensors header"),
        (header("[" * 100_000), "not a safetensors header"),
        (b"abc", "too few"),
    ],
)
def test_safetensors_files_that_are_refused(text, why, tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(text)
    with pytest.raises(ForeignError, match=why):
        list(read_safetensors_file(listed(path)))


def test_a_header_of_200_mb_is_not_read(tmp_path):
    """The file really is that large, and sparse: the claim alone is what is refused."""
    path = tmp_path / "a.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 200 * 1000**2))
        file.truncate(8 + 200 * 1000**2)
    with pytest.raises(ForeignError, match="claims 200000000 bytes; at most are read: 4194304"):
        list(read_safetensors_file(listed(path)))


def line(**changes) -> str:
    data = b"\1\2\3\4"
    fields = {"name": "x", "dtype": "F32", "shape": [1], "digest": digest_bytes(data)}
    return json.dumps({**fields, **changes})


def test_digests_are_read(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(line(step=3, rank=1) + "\n\n" + line(algorithm="swd_128"))
    first, second = read_digest_file(listed(path))
    assert first.tags == {"step": "3", "rank": "1"}
    assert first.load is None
    assert (first.digest.algorithm, second.digest.algorithm) == ("xxh3_128", "swd_128")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (line(digest="x"), "no digest of 32"),
        (line(digest="a" * 64), "no digest of 32"),
        (line(dtype="float32"), "unknown dtype"),
        (line(shape=[-1]), "is no shape"),
        (line(shape=[2**60]), "is no shape"),
        (line().replace("[1]", "[NaN]"), "not a digest"),
        (line(step=-1), "step -1"),
        (line(colour=1), "unknown field"),
        (line(algorithm="sha256"), "Invalid enum"),
        ("{", "not a digest"),
    ],
)
def test_digest_lines_that_are_refused(text, why, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(line() + "\n" + text)
    with pytest.raises(ForeignError, match=why) as caught:
        list(read_digest_file(listed(path)))
    assert "line 2" in str(caught.value)


def names(folder: Path) -> list[str]:
    return [one.name for one in list_files(folder, (".npy",))]


def test_files_are_listed_by_name_below_the_folder(tmp_path):
    (tmp_path / "b").mkdir()
    for name in ("z.npy", "b/a.npy", "note.txt"):
        (tmp_path / name).touch()
    assert names(tmp_path) == ["b/a", "z"]
    assert names(tmp_path / "z.npy") == ["z"]


def test_links_that_lead_out_are_refused_and_links_inside_are_followed(tmp_path):
    outside = tmp_path / "outside.npy"
    outside.touch()
    folder = tmp_path / "dump"
    folder.mkdir()
    (folder / "a.npy").touch()
    (folder / "b.npy").symlink_to("a.npy")
    assert names(folder) == ["a", "b"]
    (folder / "c.npy").symlink_to("../outside.npy")
    with pytest.raises(ForeignError, match="leads out of the dump"):
        names(folder)
    (folder / "c.npy").unlink()
    (folder / "d").symlink_to(tmp_path)
    with pytest.raises(ForeignError, match="link to a folder"):
        names(folder)


def test_pipes_loops_depth_and_nothing_are_refused(tmp_path):
    folder = tmp_path / "dump"
    folder.mkdir()
    with pytest.raises(ForeignError, match=r"holds no \.npy file"):
        names(folder)
    (folder / "a.npy").symlink_to("a.npy")
    with pytest.raises(ForeignError):
        names(folder)
    (folder / "a.npy").unlink()
    os.mkfifo(folder / "p.npy")
    with pytest.raises(ForeignError, match="not a regular file"):
        names(folder)
    (folder / "p.npy").unlink()
    deep = folder.joinpath(*["d"] * 9)
    deep.mkdir(parents=True)
    with pytest.raises(ForeignError, match="8 deep"):
        names(folder)
    with pytest.raises(ForeignError, match="cannot read"):
        names(tmp_path / "nothing")


def test_too_many_files_and_tensors_are_refused(tmp_path, monkeypatch):
    for number in range(6):
        np.save(tmp_path / f"{number}.npy", np.zeros(1))
    assert len(names(tmp_path)) == 6
    monkeypatch.setattr(sources, "MAX_TENSORS", 5)
    with pytest.raises(ForeignError, match="more than 5 tensors"):
        read_source("npy", tmp_path, names="plain")
    monkeypatch.setattr(listing, "MAX_FILES", 5)
    with pytest.raises(ForeignError, match="more than 5 files"):
        names(tmp_path)


def test_of_one_file_no_more_is_read_than_may_be(tmp_path, monkeypatch):
    """Lines behind the last that counts are not looked at, whatever is in them."""
    line = json.dumps({"name": "x", "dtype": "F32", "shape": [1], "digest": "0" * 32})
    path = tmp_path / "x.jsonl"
    monkeypatch.setattr(sources, "MAX_TENSORS", 5)
    path.write_text("\n".join([line] * 5))
    assert len(read_source("digests", path, names="plain")) == 5
    path.write_text("\n".join([*[line] * 6, "no digest"]))
    with pytest.raises(ForeignError, match="more than 5 tensors"):
        read_source("digests", path, names="plain")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("step=0___name=x___oops", "no tag=value"),
        ("step=0___name=x___step=1", "in its name twice"),
        ("step=0___rank=1", "no tag 'name'"),
    ],
)
def test_tagged_names_that_are_refused(name, why, tmp_path):
    np.save(tmp_path / f"{name}.npy", np.zeros(1))
    with pytest.raises(ForeignError, match=why):
        read_source("npy", tmp_path, names="tags")


def test_tags_stand_in_any_order(tmp_path):
    np.save(tmp_path / "name=a.b=c___extra=___rank=3___step=7.npy", np.zeros(1))
    (found,) = read_source("npy", tmp_path, names="tags")
    assert found.name == "a.b=c"
    assert dict(found.tags) == {"name": "a.b=c", "extra": "", "rank": "3", "step": "7"}


@pytest.fixture(scope="module")
def damaged(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("damaged") / "a.npy"


@settings(max_examples=80)
@given(data=st.data())
def test_a_damaged_npy_file_is_read_or_refused(damaged, data):
    buffer = io.BytesIO()
    np.save(buffer, np.arange(6.0).reshape(2, 3))
    good = buffer.getvalue()
    at = data.draw(st.integers(0, len(good) - 1))
    flip = data.draw(st.integers(1, 255))
    damaged.write_bytes(good[:at] + bytes([good[at] ^ flip]) + good[at + 1 :])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for found in read_npy_file(listed(damaged)):
                found.load().sum()
    except ForeignError:
        pass
