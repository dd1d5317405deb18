"""What the documents say about the code, checked against the code."""

import inspect
import re
from pathlib import Path

import msgspec
import pytest

from swarepro import points
from swarepro.bundle import dtypes, schema

DOCS = Path(__file__).resolve().parent.parent / "docs"
STRUCTS = [
    value
    for value in vars(schema).values()
    if inspect.isclass(value) and issubclass(value, schema.OnDisk) and value is not schema.OnDisk
]


def section(name: str) -> str:
    text = (DOCS / "bundle-format.md").read_text(encoding="utf-8")
    found = re.search(rf"^### {name}\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/bundle-format.md has no section {name}"
    return found[1]


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_the_format_lists_every_field_in_order(struct: type[msgspec.Struct]) -> None:
    listed = re.findall(r"^\| `(\w+)` \|", section(struct.__name__), re.MULTILINE)
    assert listed == list(struct.__struct_fields__)


def test_the_format_describes_no_type_that_is_gone() -> None:
    text = (DOCS / "bundle-format.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^### (\w+)$", text, re.MULTILINE)) == {s.__name__ for s in STRUCTS}


def test_the_format_names_its_version_and_its_dtypes() -> None:
    text = (DOCS / "bundle-format.md").read_text(encoding="utf-8")
    assert text.startswith(f"# Bundle format, version {schema.SCHEMA_VERSION}\n")
    assert f"`{' '.join(dtypes.DTYPES)}`" in text


def test_the_glossary_knows_every_dimension_letter() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    letters = {letter for point in points.ALL for letter in point.dims}
    assert {letter for letter in letters if f"`{letter}`" not in text} == set()


def test_links_between_documents_lead_somewhere() -> None:
    root = DOCS.parent
    pages = [*DOCS.rglob("*.md"), *root.glob("*.md")]
    broken = [
        f"{page.relative_to(root)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []
