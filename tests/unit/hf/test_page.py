"""docs/transformers.md says of every point where it comes from, or that it is not there."""

import re
from pathlib import Path

from swarepro import points
from swarepro.hf.engine import ABSENT
from swarepro.hf.table import TABLES

PAGE = (Path(__file__).parents[3] / "docs/transformers.md").read_text(encoding="utf-8")
EDGES = {points.BOUNDARY_SEND_HIDDEN.name, points.BOUNDARY_RECV_HIDDEN.name}


def rows() -> dict[str, str]:
    """Return the right cell by each point of the left one."""
    found = {}
    for left, right in re.findall(r"^\| (`.*?) \| (.*) \|$", PAGE, re.MULTILINE):
        found |= dict.fromkeys(re.findall(r"`(.+?)`", left), right)
    return found


def test_every_point_is_on_the_page() -> None:
    shown = rows()
    assert list(shown) == [point.name for point in points.ALL if point.name not in ABSENT | EDGES]
    without = PAGE.rpartition("are an engine's own")[0].splitlines()[-1]
    assert set(re.findall(r"`(.+?)`", without)) == ABSENT


def test_every_module_that_is_read_is_named() -> None:
    for table in TABLES.values():
        for source in table.sources:
            for module in source.modules:
                name = module.rpartition(".")[2]
                assert f"`{name}`" in rows()[source.point.name] or not name
