"""Commands that write, and an --out that cannot be written: what is in the way is named."""

from pathlib import Path

import pytest

from swarepro import points
from tests.cli.conftest import Invoke
from tests.unit.bundle.factory import Run, item

RUN = ("run", "--model", "synthetic:gemma2-tiny?layers=2", "--tokens", "5,6")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    made = Run(items=[item(points.LOGITS, [[1.0, 2.0]], row_start=66)])
    return made.write(tmp_path / "made")


@pytest.mark.parametrize("below", ["", "/deep/er"])
@pytest.mark.parametrize("command", ["run", "export"])
def test_a_file_where_a_folder_is_wanted_is_named(
    invoke: Invoke, tmp_path: Path, bundle: Path, command: str, below: str
) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    out = f"{file}{below}"
    if command == "run":
        done = invoke(*RUN, "--out", out, "--run-id", "x")
    else:
        done = invoke("export", bundle, "--out", f"{out}/x")
    assert done.code == 2
    assert done.err.splitlines() == [
        f"error: cannot write {out}/x: {file} is no folder",
        "hint: choose another --out",
    ]
    assert file.read_text() == "mine"
