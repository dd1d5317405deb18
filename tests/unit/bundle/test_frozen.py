"""A bundle of every schema version that was ever released still reads."""

from pathlib import Path

import numpy as np

from swarepro.bundle.read import KNOWN_VERSIONS, open_bundle
from tests.unit.bundle.make_frozen_v1 import frozen_run

DATA = Path(__file__).parents[2] / "data"


def test_version_1_still_reads():
    bundle = open_bundle(DATA / "bundle-v1")
    assert bundle.verify() == 4
    assert bundle.manifest.schema_version == 1
    assert bundle.manifest.run_id == "bundle-v1"
    assert bundle.manifest.tokens == ((7,),)
    assert bundle.manifest.case == {"name": "hand-made", "numbers": [1, 2.5, None]}
    assert [record.key for record in bundle.records] == [
        "input_ids",
        "embedding_output",
        "L0_o_proj",
        "after_layer_1",
        "token",
    ]
    for record, (_, array, store) in zip(bundle.records, frozen_run().items, strict=True):
        assert (record.file is not None) == store
        if store:
            np.testing.assert_array_equal(bundle.tensor(record), array)


def test_version_1_is_still_what_is_written(tmp_path):
    path = frozen_run().write(tmp_path / "bundle-v1")
    files = sorted(file.relative_to(path) for file in path.rglob("*") if file.is_file())
    assert files
    for file in files:
        assert (path / file).read_bytes() == (DATA / "bundle-v1" / file).read_bytes()


def test_every_known_version_has_a_frozen_bundle():
    assert all((DATA / f"bundle-v{version}").is_dir() for version in KNOWN_VERSIONS)
