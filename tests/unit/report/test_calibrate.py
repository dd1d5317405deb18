"""What a calibration says of its floor."""

from pathlib import Path

import msgspec

from swarepro.compare.floor import FloorVariant
from swarepro.report.calibrate import calibrate_document, calibrate_report
from tests.unit.compare.test_floor import ENTRY, floor

VARIANTS = (
    FloorVariant(name="chunks of 7", kind="order", boundaries=1234, tokens_differ=True),
    FloorVariant(name="engine dense", kind="precision", boundaries=9, tokens_differ=False),
)
MADE = msgspec.structs.replace(
    floor(
        msgspec.structs.replace(ENTRY, layer=0, order=0.25, precision=0.125),
        msgspec.structs.replace(ENTRY, layer=1, order=0.5, precision=0.0625),
        msgspec.structs.replace(ENTRY, layer=2, order=0.375, precision=0.09375),
    ),
    variants=VARIANTS,
)


def test_the_largest_spread_of_a_point_over_its_layers() -> None:
    report = calibrate_report(MADE, out=Path("f.json"))
    variants, points = report.grids
    assert variants.rows == (
        ("chunks of 7", "order", "1,234", "yes"),
        ("engine dense", "precision", "9", "no"),
    )
    assert points.rows == (("L*_o_proj", "0.5", "0.125"),)
    assert report.lines == ("Rounding alone chose other tokens in: chunks of 7.",)
    assert "--floor f.json" in report.commands[0]


def test_control_without_another_token() -> None:
    same = msgspec.structs.replace(MADE, variants=VARIANTS[1:])
    assert calibrate_report(same, out=Path("f.json")).lines == ()


def test_the_document_says_what_ran() -> None:
    document = calibrate_document(MADE, out=Path("f.json"))
    assert (document["entries"], document["floor"]) == (3, "f.json")
    assert document["variants"] == [msgspec.structs.asdict(each) for each in VARIANTS]
