"""Print pyproject.toml's lower bounds as a constraints file: what `make lowest` installs.

Only what swarepro imports at run time is held down; the development tools stay free. No library
outside the standard one: this runs before anything is installed.
"""

import re
import sys
import tomllib
from pathlib import Path

BOUND = re.compile(r"^([A-Za-z0-9._-]+)>=([0-9][0-9.]*)(?:\s*;.*)?$")


def lower_bounds(requirements: list[str]) -> dict[str, str]:
    """Return name to lowest version; raise ValueError for a requirement without a plain ``>=``."""
    bounds = {}
    for requirement in requirements:
        match = BOUND.match(requirement)
        if match is None:
            raise ValueError(f"not of the form NAME>=VERSION: {requirement!r}")
        bounds[match[1]] = match[2]
    return bounds


def project() -> dict[str, list[str]]:
    """Return the requirements of the project and, by name, of its extras."""
    table = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {"": table["dependencies"], **table["optional-dependencies"]}


if __name__ == "__main__":
    for name, version in lower_bounds(project()[""]).items():
        sys.stdout.write(f"{name}=={version}\n")
