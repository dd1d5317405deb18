"""A manifest whose seal fits and whose numbers cannot be: refused, and by name."""

import json
import shutil
from functools import reduce
from pathlib import Path

import msgspec
import pytest

from swarepro.bundle.digest import digest_bytes
from swarepro.bundle.read import open_bundle
from swarepro.errors import BundleError
from tests.unit.bundle.factory import ROOT

FROZEN = ROOT / "tests" / "data" / "bundle-v2"
HUGE = 10**30


def resealed(tmp_path: Path, change) -> Path:
    """Copy the frozen bundle, change its manifest as JSON and give it the seal that fits."""
    path = shutil.copytree(FROZEN, tmp_path / "bundle")
    file = path / "manifest.json"
    raw = json.loads(file.read_bytes())
    change(raw)
    # json, not msgspec: it writes integers of any size
    compact = json.dumps(raw | {"seal": ""}, separators=(",", ":")).encode()
    raw["seal"] = digest_bytes(compact)
    file.write_text(json.dumps(raw))
    return path


def put(place: str, value):
    """Return a change of one value; ``place`` is e.g. ``ownership.0.stage``."""

    def change(raw):
        *parents, last = [int(key) if key.isdigit() else key for key in place.split(".")]
        reduce(lambda held, key: held[key], parents, raw)[last] = value

    return change


def test_control_the_helper_alone_changes_nothing(tmp_path):
    manifest = open_bundle(FROZEN).manifest
    again = open_bundle(resealed(tmp_path, lambda raw: None)).manifest
    assert again == manifest


NUMBERS = (
    "num_layers",
    "backend.num_threads",
    "stages.0.layer_start",
    "stages.0.layer_end",
    "stages.0.bytes_read",
    "stages.0.header_bytes",
    "steps.0.index",
    "steps.0.spans.0.session",
    "steps.0.spans.0.start",
    "steps.0.spans.0.end",
    "prompts.0.0",
    "tokens.0.0",
    "ownership.0.stage",
    "ownership.0.capacity",
    "ownership.0.free",
    "ownership.0.live",
    "ownership.0.evictable",
    "ownership.0.reserved",
    "ownership.0.positions",
)


@pytest.mark.parametrize("value", [-HUGE, -1, HUGE])
@pytest.mark.parametrize("place", NUMBERS)
def test_a_number_out_of_range_is_refused(tmp_path, place, value):
    with pytest.raises(BundleError) as caught:
        open_bundle(resealed(tmp_path, put(place, value)))
    assert "manifest.json: " in caught.value.message
    assert str(value) in caught.value.message or "out of range" in caught.value.message


def found(raw) -> list[tuple[int, int]]:
    return [
        (place, index)
        for place, owned in enumerate(raw["ownership"])
        for index, _ in enumerate(owned["violations"])
    ]


@pytest.mark.parametrize("value", [-HUGE, -5, HUGE])
@pytest.mark.parametrize("key", ["step", "layer", "order", "owner", "user"])
def test_a_violation_out_of_range_is_refused(tmp_path, key, value):
    def change(raw):
        (place, index), *_ = found(raw)
        violation = raw["ownership"][place]["violations"][index]
        violation[key] = {"session": value, "position": 0} if key in ("owner", "user") else value

    with pytest.raises(BundleError):
        open_bundle(resealed(tmp_path, change))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (put("steps.1.index", 0), "step 0 stands where step 1 is next"),
        (put("steps.0.spans", []), "step 0: it computes nothing"),
        (put("stages", []), "it has no stage"),
        (put("stages.0.role", "middle"), "make it single, not middle"),
        (lambda raw: raw["tokens"].pop(), r"tokens of \d+ sessions, and prompts of \d+"),
        (lambda raw: raw["ownership"].append(raw["ownership"][0]), "it is there twice"),
        (put("backend.routes", {"x": "eager"}), "'x' is no code of a route"),
        (
            put("ownership.0.owners", [{"session": 0, "start": 10**6, "slots": [1]}]),
            "owners: session 0 has no positions 1000000 to 1000001",
        ),
    ],
)
def test_what_is_at_odds_with_the_rest_is_refused(tmp_path, change, match):
    with pytest.raises(BundleError, match=match):
        open_bundle(resealed(tmp_path, change))


def test_books_that_do_not_add_up_without_a_reason_are_refused(tmp_path):
    def more(raw):
        raw["ownership"][0]["free"] += 1
        raw["faults"] = []
        raw["ownership"][0]["violations"] = []

    with pytest.raises(BundleError, match=r"its slots are \d+ by state, and its capacity is \d+"):
        open_bundle(resealed(tmp_path, more))


@pytest.mark.parametrize(
    "field", ["final_actions", "shadow", "backend.fill", "steps.0.actions", "ownership.0.reserved"]
)
def test_a_field_with_a_default_cannot_be_left_out(tmp_path, field):
    """Its default would be read, whatever was written."""
    path = shutil.copytree(FROZEN, tmp_path / "bundle")
    file = path / "manifest.json"
    raw = json.loads(file.read_bytes())
    *parents, last = [int(key) if key.isdigit() else key for key in field.split(".")]
    holder = reduce(lambda held, key: held[key], parents, raw)
    default = {"final_actions": [], "shadow": True, "fill": "zero", "actions": [], "reserved": 0}
    holder[last] = default[last]
    if last == "reserved":
        raw["ownership"][0].update(violations=[])
        raw["faults"] = ["any"]
    sealed = raw | {"seal": digest_bytes(msgspec.json.encode(raw | {"seal": ""}))}
    file.write_text(json.dumps(sealed))
    open_bundle(path)  # the control: said in full, it is read
    del holder[last]
    file.write_text(json.dumps(raw | {"seal": sealed["seal"]}))
    with pytest.raises(BundleError, match="its text is not what its fields give"):
        open_bundle(path)


@pytest.mark.parametrize("twice", ['"shadow": true, "shadow": ', '"shadow": false, "shadow": '])
def test_a_field_is_there_once(tmp_path, twice):
    path = shutil.copytree(FROZEN, tmp_path / "bundle")
    text = (path / "manifest.json").read_text()
    assert text.count('"shadow": ') == 1
    (path / "manifest.json").write_text(text.replace('"shadow": ', twice))
    with pytest.raises(BundleError, match="its text is not what its fields give"):
        open_bundle(path)
