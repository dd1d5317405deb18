"""Digests of two kinds: never compared with each other; the stored bytes are."""

import msgspec
import numpy as np
import pytest

from swarepro import points
from swarepro.bundle.device_digest import DeviceDigest
from swarepro.bundle.read import open_bundle
from swarepro.compare.determinism import classify
from swarepro.compare.divergence import compare_bundles
from swarepro.compare.types import Tolerance, Verdict
from swarepro.errors import BundleError, IncomparableError
from tests.unit.bundle.factory import Run, item, spans, stages

VALUES = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


def on_device(made):
    """The item as a GPU would digest it."""
    record, array, store = made
    state = DeviceDigest(record.dtype, record.shape)
    state.update(array.tobytes())
    digest = state.hexdigest()
    return msgspec.structs.replace(record, digest=digest, algorithm="swd_128"), array, store


def run(*items) -> Run:
    return Run(items=list(items), num_layers=1, stages=stages((0, 1)))


def embedding(array=VALUES, store=True):
    return item(points.EMBEDDING_OUTPUT, array, store=store)


def changed():
    array = VALUES.copy()
    array[2, 1] = np.nextafter(array[2, 1], np.float32(9))
    return array


def test_stored_bytes_decide(tmp_path):
    host = run(embedding()).open(tmp_path / "host")
    same = run(on_device(embedding())).open(tmp_path / "same")
    other = run(on_device(embedding(changed()))).open(tmp_path / "other")
    equal = compare_bundles(host, same)
    assert (equal.verdict, equal.tensors_opened) == (Verdict.IDENTICAL, 2)
    found = compare_bundles(host, other)
    assert found.verdict is Verdict.DIVERGED
    assert found.first.numbers.rows == (2,)
    assert compare_bundles(same, other).verdict is Verdict.DIVERGED


def test_digests_alone_cannot_be_judged(tmp_path):
    """Even the same hex digits say nothing when they are of two kinds."""
    record, array, store = embedding(store=False)
    pretender = (msgspec.structs.replace(record, algorithm="swd_128"), array, store)
    host = run((record, array, store)).open(tmp_path / "host")
    device = run(pretender).open(tmp_path / "device")
    with pytest.raises(IncomparableError, match="digests of two kinds say nothing"):
        compare_bundles(host, device)


def test_a_tolerance_opens_them_too(tmp_path):
    host = run(embedding()).open(tmp_path / "host")
    other = run(on_device(embedding(changed()))).open(tmp_path / "other")
    assert compare_bundles(host, other, tolerance=Tolerance(max_ulp=1)).verdict == (
        Verdict.WITHIN_TOLERANCE
    )
    assert compare_bundles(host, other, tolerance=Tolerance(max_ulp=0)).verdict == (
        Verdict.DIVERGED
    )


@pytest.mark.parametrize("store", [True, False])
def test_joined_rows_do_not_trust_digits_of_two_kinds(tmp_path, store):
    record, array, _ = embedding(store=store)
    twisted = changed() if store else array
    pretender = (
        msgspec.structs.replace(record, algorithm="swd_128", digest=record.digest),
        twisted,
        store,
    )
    steps = spans((0, 4))
    host = Run(items=[(record, array, store)], steps=steps).open(tmp_path / "host")
    device = Run(items=[pretender], steps=steps).open(tmp_path / "device")
    with pytest.raises((IncomparableError, BundleError)):
        compare_bundles(host, device, align="position")


def test_a_reader_checks_device_digests(tmp_path):
    path = run(on_device(embedding())).write(tmp_path / "a")
    assert open_bundle(path).verify() == 1
    file = path / "tensors" / "step-0000.safetensors"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    with pytest.raises(BundleError, match="its record says"):
        open_bundle(path).verify()


def test_the_algorithm_is_left_out_of_a_line_where_it_is_the_usual_one(tmp_path):
    host = run(embedding()).write(tmp_path / "host")
    device = run(on_device(embedding())).write(tmp_path / "device")
    assert b"algorithm" not in (host / "records.jsonl").read_bytes()
    assert b'"algorithm":"swd_128"' in (device / "records.jsonl").read_bytes()
    assert open_bundle(host).records[0].algorithm == "xxh3_128"


def test_a_dtype_without_the_digest_is_refused(tmp_path):
    record, array, _ = embedding(store=False)
    odd = msgspec.structs.replace(record, algorithm="swd_128", dtype="F8_E4M3")
    path = run((odd, array, False)).write(tmp_path / "a")
    with pytest.raises(BundleError, match="swd_128 is not defined for F8_E4M3"):
        open_bundle(path)


def test_repeats_of_two_kinds_are_not_equal():
    record, _, _ = embedding()
    other = msgspec.structs.replace(record, algorithm="swd_128")
    found = classify([(record,), (other,)], [(), ()])
    assert found.verdict == "NONDETERMINISTIC"
    assert classify([(record,), (record,)], [(), ()]).verdict == "DETERMINISTIC"
