"""The cases that come with swarepro, and where a case is looked for."""

from pathlib import Path

from swarepro.case import CaseSpec, load_case
from swarepro.errors import CaseError
from swarepro.registry import did_you_mean


def shipped_cases() -> dict[str, Path]:
    """Return the shipped case files by name, sorted."""
    package = Path(__file__).parent
    for folder in (package / "_cases", package.parent / "cases"):
        if folder.is_dir():
            return {path.stem: path for path in sorted(folder.glob("*.toml"))}
    return {}


def find_case(name_or_path: str) -> CaseSpec:
    """Return a shipped case by name, or the case of a TOML path. Raises CaseError."""
    shipped = shipped_cases()
    if name_or_path in shipped:
        return load_case(shipped[name_or_path])
    path = Path(name_or_path)
    if path.suffix == ".toml" or path.is_file():
        return load_case(path)
    raise CaseError(
        f"no such case: {name_or_path!r}",
        hint=did_you_mean(name_or_path, shipped) or f"known: {', '.join(shipped)}",
    )
