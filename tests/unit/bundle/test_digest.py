import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from swarepro.bundle.digest import digest_bytes, is_digest
from swarepro.bundle.dtypes import DTYPES, tensor_bytes


@given(st.binary(max_size=500))
def test_it_is_xxh3_128(data):
    assert digest_bytes(data) == xxhash.xxh3_128(data).hexdigest()
    assert is_digest(digest_bytes(data))


def test_views_of_any_element_type_have_the_digest_of_their_bytes():
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    assert digest_bytes(array.data) == digest_bytes(array.tobytes())
    assert digest_bytes(np.zeros((0, 4)).data) == digest_bytes(b"")


def test_it_sees_swapped_rows():
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    assert digest_bytes(array[[1, 0, 2, 3]].data) != digest_bytes(array.data)


def test_a_view_that_is_not_contiguous_is_refused():
    with pytest.raises((ValueError, BufferError)):
        digest_bytes(np.arange(6).reshape(2, 3).T.data)


@pytest.mark.parametrize("text", ["", "0" * 31, "0" * 33, "G" * 32, "A" * 32, "0" * 32 + "\n"])
def test_what_is_no_digest(text):
    assert not is_digest(text)


def test_sizes():
    assert {name: dtype.num_bytes for name, dtype in DTYPES.items()} == {
        "F64": 8,
        "F32": 4,
        "F16": 2,
        "BF16": 2,
        "F8_E4M3": 1,
        "F8_E5M2": 1,
        "I64": 8,
        "I32": 4,
        "I16": 2,
        "I8": 1,
        "U64": 8,
        "U32": 4,
        "U16": 2,
        "U8": 1,
        "BOOL": 1,
    }
    assert tensor_bytes("BF16", (3, 5)) == 30
    assert tensor_bytes("F32", ()) == 4
    assert tensor_bytes("F32", (0, 7)) == 0
