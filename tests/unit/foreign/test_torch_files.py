"""The reader of `.pt` files against torch itself; and what it refuses, with nothing executed."""

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from swarepro.errors import ForeignError
from swarepro.foreign.listing import Listed
from swarepro.foreign.torch_files import read_torch_file

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "U16": torch.uint16,
    "U32": torch.uint32,
    "BOOL": torch.bool,
}


def read(path: Path):
    return list(read_torch_file(Listed(path=path, name=path.stem)))


def saved(value, folder: Path) -> Path:
    path = folder / "t.pt"
    torch.save(value, path)
    return path


def bytes_of(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_has_the_bytes_that_torch_loads(name, tmp_path):
    tensor = torch.arange(1, 13).reshape(3, 4).to(DTYPES[name])
    path = saved({"value": tensor, "meta": {"rank": 0, "x": [1.5, None, True, "s"]}}, tmp_path)
    (found,) = read(path)
    loaded = torch.load(path, weights_only=True)["value"]
    assert (found.name, found.dtype, found.shape) == ("t", name, (3, 4))
    assert np.ascontiguousarray(found.load()).tobytes() == bytes_of(loaded)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1),
        torch.arange(24.0)[5:17:3],
        torch.arange(24.0).reshape(4, 6)[1:3, 2:5],
        torch.tensor(3.0),
        torch.zeros(0, 4),
        torch.nn.Parameter(torch.arange(6.0).reshape(2, 3)),
    ],
    ids=["permuted", "strided", "sliced", "scalar", "empty", "parameter"],
)
def test_views_have_their_own_values_and_not_their_storage(tensor, tmp_path):
    (found,) = read(saved(tensor, tmp_path))
    assert found.shape == tuple(tensor.shape)
    assert np.ascontiguousarray(found.load()).tobytes() == bytes_of(tensor)
    assert not found.load().flags.writeable


def test_tensors_in_dicts_and_lists_have_names(tmp_path):
    layer = {"q": torch.ones(1), "kv": (torch.ones(2), torch.ones(3))}
    found = read(saved({"layers": [layer], "note": "x", "value": 3}, tmp_path))
    assert {one.name: one.shape for one in found} == {
        "t:layers.0.q": (1,),
        "t:layers.0.kv.0": (2,),
        "t:layers.0.kv.1": (3,),
    }


def test_plain_data_of_an_engine_is_no_tensor_and_no_error(tmp_path):
    extra = {"size": torch.Size([1, 2]), "dtype": torch.bfloat16, "device": torch.device("cpu")}
    (found,) = read(saved({"value": ["r1", "r2"], "meta": extra}, tmp_path))
    assert found.dtype == ""
    assert found.load is None


def test_two_tensors_share_a_storage(tmp_path):
    base = torch.arange(10.0)
    first, second = read(saved([base[:4], base[4:]], tmp_path))
    assert first.load().tolist() == [0, 1, 2, 3]
    assert second.load().tolist() == [4, 5, 6, 7, 8, 9]


class Evil:
    """A pickle that calls something when it is loaded; here it would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("where", ["bare", "legacy", "value", "meta", "nested"])
def test_a_pickle_with_code_is_refused_and_not_executed(where, tmp_path):
    mark = tmp_path / "executed"
    path = tmp_path / "t.pt"
    evil = Evil(mark)
    if where == "bare":
        path.write_bytes(pickle.dumps(evil))
    elif where == "legacy":
        torch.save(evil, path, _use_new_zipfile_serialization=False)
    elif where == "value":
        torch.save({"value": evil}, path)
    elif where == "meta":
        torch.save({"value": torch.ones(2), "meta": evil}, path)
    else:
        torch.save([{"a": {"b": [torch.ones(1), evil]}}], path)
    with pytest.raises(ForeignError, match=r"executed|no zip archive"):
        read(path)
    assert not mark.exists()
    # The control: loading it as code does make the file.
    torch.load(path, weights_only=False) if where != "bare" else pickle.loads(path.read_bytes())
    assert mark.exists()


def test_a_foreign_class_is_refused_by_name(tmp_path):
    path = saved({"value": torch.ones(2), "meta": zipfile.ZipInfo("a")}, tmp_path)
    with pytest.raises(ForeignError, match=r"names '.*zipfile\.ZipInfo'"):
        read(path)


def archive(folder: Path, pickled: bytes, storage: bytes = b"\0" * 48, **options) -> Path:
    """Write a file as torch does, with a pickle and a storage of our own."""
    path = folder / "t.pt"
    with zipfile.ZipFile(path, "w", **options) as out:
        out.writestr("archive/data.pkl", pickled)
        out.writestr("archive/byteorder", b"little")
        out.writestr("archive/data/0", storage)
    return path


def pickle_of(tensor: torch.Tensor) -> bytes:
    buffer = io.BytesIO()
    torch.save(tensor, buffer)
    with zipfile.ZipFile(buffer) as found:
        return found.read("archive/data.pkl")


def test_the_hand_made_archive_is_read(tmp_path):
    """The control of the tests below."""
    (found,) = read(archive(tmp_path, pickle_of(torch.zeros(3, 4))))
    assert found.load().shape == (3, 4)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b"K\x03K\x04\x86", b"K\x03K\x05\x86", "reach beyond|expanded"),
        (b"K\x04K\x01\x86", b"K\x09K\x01\x86", "reach beyond"),
        (b"FloatStorage", b"EvalStorage_"[:12], "names 'torch.EvalStorage_'"),
        (b"K\x03K\x04\x86", b"\x8a\x08" + b"\xff" * 7 + b"\x7fK\x04\x86", "no such thing|shape"),
        (b"K\x03K\x04\x86", b"\x8a\x01\xffK\x04\x86", "a tensor of shape"),
        (b"K\x03K\x04\x86", b"G\x7f\xf8\0\0\0\0\0\0K\x04\x86", "no such thing"),
        (b"Q", b"0", "."),
    ],
)
def test_a_pickle_that_lies_about_its_tensor(old, new, why, tmp_path):
    pickled = pickle_of(torch.zeros(3, 4))
    assert old in pickled
    with pytest.raises(ForeignError, match=why):
        read(archive(tmp_path, pickled.replace(old, new)))


@pytest.mark.parametrize(("elements", "fits"), [(12, True), (11, False)])
def test_the_last_element_lies_in_the_storage(elements, fits, tmp_path):
    """Three rows of two, five apart, reach the twelfth: the next byte is another entry's."""
    pickled = pickle_of(torch.zeros(3, 2)).replace(b"K\x02K\x01\x86", b"K\x05K\x01\x86")
    path = archive(tmp_path, pickled, b"\0" * 4 * elements)
    if fits:
        assert read(path)[0].load().shape == (3, 2)
    else:
        with pytest.raises(ForeignError, match="reach beyond its storage of 11 elements"):
            read(path)


def test_an_entry_that_does_not_begin_where_the_archive_says(tmp_path):
    path = archive(tmp_path, pickle_of(torch.zeros(3, 4)))
    data = path.read_bytes()
    assert data.count(b"PK\x03\x04") == 3
    path.write_bytes(data.replace(b"PK\x03\x04", b"PK\x03\x05", 1))
    with pytest.raises(ForeignError, match=r"'archive/data\.pkl' is cut"):
        read(path)


def test_a_tensor_that_is_larger_than_its_storage_is_refused(tmp_path):
    path = saved(torch.zeros(1, 4).expand(1 << 40, 4), tmp_path)
    with pytest.raises(ForeignError, match="expanded from 4 elements"):
        read(path)


@pytest.mark.parametrize(
    "opcode", [b"i", b"o", b"\x81", b"\x92", b"b", b"P0\n", b"\x82\x01", b"c\nos\n", b"\x97"]
)
def test_instructions_that_no_tensor_needs_are_refused(opcode, tmp_path):
    with pytest.raises(ForeignError):
        read(archive(tmp_path, b"\x80\x02" + opcode + b"."))


def test_a_memo_far_away_takes_no_memory(tmp_path):
    (found,) = read(archive(tmp_path, b"\x80\x02Nr\xff\xff\xff\x7f."))
    assert found.dtype == ""


@pytest.mark.parametrize("leaf", [torch.zeros(2), 1])
def test_lists_that_repeat_each_other_end(tmp_path, leaf):
    """Three kilobytes that unfold to ten thousand million items."""
    value = leaf
    for _ in range(4):
        value = [value] * 320
    path = saved(value, tmp_path)
    assert path.stat().st_size < 10_000
    with pytest.raises(ForeignError, match="hold too much"):
        read(path)


def test_names_that_grow_without_end_are_refused(tmp_path):
    with pytest.raises(ForeignError, match="names too long"):
        read(saved({"x" * 600: torch.zeros(2)}, tmp_path))


def test_a_tensor_that_lies_too_deep_is_not_left_out(tmp_path):
    (found,) = read(saved([[[{"a": torch.zeros(2)}]]], tmp_path))
    assert found.name == "t:0.0.0.a"
    with pytest.raises(ForeignError, match="deeper than 4 keys"):
        read(saved([[[[{"a": torch.zeros(2)}]]]], tmp_path))
    (found,) = read(saved([[[[{"a": 1}]]]], tmp_path))
    assert found.dtype == ""  # no tensor at all


def test_deep_nesting_ends_without_a_crash(tmp_path):
    deep = b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."
    (found,) = read(archive(tmp_path, deep))
    assert found.dtype == ""


def test_compressed_and_oversized_archives_are_refused(tmp_path):
    pickled = pickle_of(torch.zeros(3, 4))
    with pytest.raises(ForeignError, match="compressed"):
        read(archive(tmp_path, pickled, compression=zipfile.ZIP_DEFLATED))
    with pytest.raises(ForeignError, match=r"data\.pkl of at most"):
        read(archive(tmp_path, pickled + b"\0" * (1 << 20)))


def test_a_storage_that_is_missing_or_big_endian(tmp_path):
    path = tmp_path / "t.pt"
    for name, value, why in (("other", b"", "missing"), ("byteorder", b"big", "little-endian")):
        with zipfile.ZipFile(path, "w") as out:
            out.writestr("archive/data.pkl", pickle_of(torch.zeros(3, 4)))
            out.writestr(f"archive/{name}", value)
        with pytest.raises(ForeignError, match=why):
            read(path)


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> tuple[bytes, Path]:
    value = {"value": torch.arange(12.0).reshape(3, 4), "meta": {"a": [1, "x"]}}
    folder = tmp_path_factory.mktemp("good")
    return saved(value, folder).read_bytes(), folder / "damaged.pt"


@settings(max_examples=150)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused_and_nothing_else(good, data):
    good, path = good
    at = data.draw(st.integers(0, len(good) - 1))
    cut = data.draw(st.booleans())
    flip = data.draw(st.integers(1, 255))
    text = good[:at] if cut else good[:at] + bytes([good[at] ^ flip]) + good[at + 1 :]
    path.write_bytes(text)
    try:
        for found in read(path):
            if found.load is not None:
                found.load().sum()
    except ForeignError:
        pass
