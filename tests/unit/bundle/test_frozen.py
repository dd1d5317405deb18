"""A bundle of every schema version that was ever released still reads."""

import json
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest

from swarepro.bundle import schema
from swarepro.bundle.digest import digest_bytes
from swarepro.bundle.read import KNOWN_VERSIONS, open_bundle
from swarepro.bundle.schema import SCHEMA_VERSION
from swarepro.compare.divergence import compare_bundles
from swarepro.compare.types import Verdict
from swarepro.errors import BundleError
from swarepro.ownership import VIOLATION_KINDS
from tests.unit.bundle import make_frozen_v1, make_frozen_v2

DATA = Path(__file__).parents[2] / "data"
MADE = {1: make_frozen_v1.frozen_run, 2: make_frozen_v2.frozen_run}


@pytest.mark.parametrize("version", KNOWN_VERSIONS)
def test_it_still_reads(version):
    bundle = open_bundle(DATA / f"bundle-v{version}")
    run = MADE[version]()
    assert bundle.verify() == sum(store for _, _, store in run.items)
    assert bundle.manifest.schema_version == version
    assert bundle.manifest.run_id == f"bundle-v{version}"
    assert bundle.manifest.case == {"name": "hand-made", "numbers": [1, 2.5, None]}
    for field, value in run.manifest_fields().items():
        assert getattr(bundle.manifest, field) == value
    for record, (made, array, store) in zip(bundle.records, run.items, strict=True):
        assert (record.key, record.session) == (made.key, made.session)
        assert (record.file is not None) == store
        if store:
            np.testing.assert_array_equal(bundle.tensor(record), array)


def test_what_version_1_says_by_lacking_it():
    manifest = open_bundle(DATA / "bundle-v1").manifest
    assert manifest.steps[0].spans[0].phase is None
    assert manifest.steps[0].actions == manifest.final_actions == ()
    assert (manifest.shadow, manifest.backend.fill) == (True, "zero")


def test_the_latest_version_holds_violations_of_kinds_that_exist():
    manifest = open_bundle(DATA / f"bundle-v{SCHEMA_VERSION}").manifest
    kinds = {found.kind for owned in manifest.ownership for found in owned.violations}
    assert kinds
    assert kinds <= set(VIOLATION_KINDS)


def test_the_latest_version_is_still_what_is_written(tmp_path):
    name = f"bundle-v{SCHEMA_VERSION}"
    path = MADE[SCHEMA_VERSION]().write(tmp_path / name)
    files = sorted(file.relative_to(path) for file in path.rglob("*") if file.is_file())
    assert len(files) > 2
    for file in files:
        assert (path / file).read_bytes() == (DATA / name / file).read_bytes()


def test_records_and_tensors_are_written_as_in_version_1(tmp_path):
    path = MADE[1]().write(tmp_path / "bundle-v1")
    for file in ("records.jsonl", "tensors/step-0000.safetensors"):
        assert (path / file).read_bytes() == (DATA / "bundle-v1" / file).read_bytes()


def test_every_known_version_has_a_frozen_bundle():
    assert all((DATA / f"bundle-v{version}").is_dir() for version in KNOWN_VERSIONS)
    assert max(KNOWN_VERSIONS) == SCHEMA_VERSION
    assert MADE.keys() == set(KNOWN_VERSIONS)


def test_the_frozen_bundle_of_version_2_uses_every_field_that_has_a_default():
    """Else a change of one would go unseen."""
    values: dict[str, set] = {}

    def walk(value):
        if isinstance(value, schema.OnDisk):
            for field in msgspec.structs.fields(value):
                held = getattr(value, field.name)
                if not field.required and field.name not in ("shadow", "digest", "launches"):
                    used = held != field.default
                    values.setdefault(f"{type(value).__name__}.{field.name}", set()).add(used)
                walk(held)
        elif isinstance(value, tuple):
            for part in value:
                walk(part)

    walk(open_bundle(DATA / "bundle-v2").manifest)
    assert {"Violation.owner", "SpanEntry.phase", "StageOwnership.evictable"} <= values.keys()
    assert {field for field, used in values.items() if True not in used} == set()


def rewritten(tmp_path, change, *, sealed=True):
    """Copy the bundle of version 1 and change its manifest, with or without a seal to match."""
    path = shutil.copytree(DATA / "bundle-v1", tmp_path / "bundle-v1")
    file = path / "manifest.json"
    raw = json.loads(file.read_bytes())
    change(raw)
    if sealed:
        raw["seal"] = digest_bytes(msgspec.json.encode(raw | {"seal": ""}))
    file.write_text(json.dumps(raw))
    return path


def test_the_seal_of_version_1_is_checked(tmp_path):
    def rename(raw):
        raw["model"] = "synthetic:other"

    path = rewritten(tmp_path / "broken", rename, sealed=False)
    with pytest.raises(BundleError, match="its seal is"):
        open_bundle(path)
    path = rewritten(tmp_path / "control", rename)
    assert open_bundle(path).manifest.model == "synthetic:other"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda raw: raw.update(shadow=True), "shadow"),
        (lambda raw: raw.update(final_actions=[]), "final_actions"),
        (lambda raw: raw["backend"].update(fill="zero"), "fill"),
        (lambda raw: raw["steps"][0].update(actions=[]), "actions"),
        (lambda raw: raw["steps"][0]["spans"][0].update(phase="prefill"), "phase"),
    ],
)
def test_version_1_has_no_field_of_version_2(tmp_path, change, field):
    with pytest.raises(BundleError, match=f"unknown field `{field}`"):
        open_bundle(rewritten(tmp_path, change))


def test_version_1_compares_with_what_is_written_today(tmp_path):
    today = MADE[1]().open(tmp_path / "today")
    found = compare_bundles(open_bundle(DATA / "bundle-v1"), today)
    assert (found.verdict, found.align, found.differences) == (Verdict.IDENTICAL, "step", ())
