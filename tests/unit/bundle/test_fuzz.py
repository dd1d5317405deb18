"""Whatever happens to a file of a bundle: a BundleError, or the very same content."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarepro.bundle.read import open_bundle
from swarepro.errors import BundleError
from tests.unit.bundle.factory import small_run

FILES = ("manifest.json", "records.jsonl", "tensors/step-0000.safetensors")


def content(path: Path) -> tuple:
    """Everything that a reader can get out of a bundle."""
    bundle = open_bundle(path)
    tensors = [
        (bundle.tensor(record).tobytes(), bundle.tensor(record).shape, bundle.tensor(record).dtype)
        for record in bundle.records
        if record.file
    ]
    return bundle.manifest, bundle.records, tensors


@pytest.fixture(scope="module")
def original():
    with tempfile.TemporaryDirectory() as folder:
        path = small_run().write(Path(folder) / "a")
        yield path, content(path)


def damaged(original: Path, name: str, data: bytes) -> tuple | None:
    """The content of a copy in which one file holds ``data``, or None when it is refused."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(original, Path(folder) / "a"))
        (copy / name).write_bytes(data)
        try:
            return content(copy)
        except BundleError as error:
            assert "bundle" in str(error) or str(copy) in str(error)
            return None


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_flipped_bits(original, name, data):
    path, wanted = original
    text = bytearray((path / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert damaged(path, name, bytes(text)) in (None, wanted)


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_cut_and_spliced(original, name, data):
    path, wanted = original
    text = (path / name).read_bytes()
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    middle = data.draw(st.binary(max_size=20))
    changed = text[:start] + middle + text[end:]
    assert damaged(path, name, changed) in (None, wanted)


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=30, deadline=None)
@given(text=st.binary(max_size=300))
def test_arbitrary_content(original, name, text):
    path, _ = original
    assert damaged(path, name, text) is None


def test_every_single_byte_of_the_manifest_is_covered_by_the_seal(original):
    path, wanted = original
    text = (path / "manifest.json").read_bytes()
    for place in range(0, len(text), 7):
        changed = bytearray(text)
        changed[place] ^= 1
        assert damaged(path, "manifest.json", bytes(changed)) in (None, wanted)


def test_the_fuzz_would_notice_a_change(original, tmp_path):
    """Negative control: a bundle with another token reads well and is not the same content."""
    _, wanted = original
    run = small_run()
    run.tokens = ((8,),)
    assert content(run.write(tmp_path / "b")) != wanted
