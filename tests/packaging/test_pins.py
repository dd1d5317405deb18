"""The files that pin versions agree with each other, and CI runs nothing but make targets."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
INSTALLED_EXTRAS = ("dev", "gguf", "hf")
REQUIREMENTS = [
    Requirement(text)
    for group in (
        PROJECT["dependencies"],
        *(PROJECT["optional-dependencies"][extra] for extra in INSTALLED_EXTRAS),
    )
    for text in group
]


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    entries = [line for line in lines if line and not line.startswith("#")]
    pairs = [entry.split("==") for entry in entries]
    assert all(len(pair) == 2 for pair in pairs), "one NAME==VERSION a line"
    return {canonicalize_name(name): version for name, version in pairs}


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda req: req.name)
def test_every_direct_dependency_is_pinned_inside_its_bounds(requirement: Requirement) -> None:
    version = pins()[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(version)


def test_no_pin_pulls_a_cuda_build() -> None:
    assert pins()["torch"] == "2.13.0"
    assert [name for name in pins() if name.startswith(("nvidia", "cuda"))] == []
    assert [version for version in pins().values() if "+" in version] == []


def test_every_requirement_has_a_lower_bound_that_make_lowest_can_install() -> None:
    assert all(
        [specifier.operator for specifier in requirement.specifier] == [">="]
        for requirement in REQUIREMENTS
    )


def test_no_file_that_installs_names_a_registry() -> None:
    for name in ("pyproject.toml", "constraints.txt", "Makefile", ".ci/run"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert "://" not in text, name
        assert "index-url" not in text, name


def make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):.*## ", text, flags=re.MULTILINE))


def test_every_phony_target_has_its_help() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", text, flags=re.MULTILINE)
    assert set(phony.split()) == make_targets()


def test_ci_calls_only_make_targets() -> None:
    workflow = ROOT / ".github" / "workflows" / "ci.yml"
    if not workflow.exists():
        pytest.skip("an sdist has no workflow")
    commands = re.findall(r"^\s+(?:- )?run: (.*)$", workflow.read_text("utf-8"), re.MULTILINE)
    targets = [command.split() for command in commands if not command.startswith("exit ")]
    assert targets
    for target in targets:
        assert target[0] == "make"
        assert set(target[1:]) <= make_targets()


def test_the_hooks_use_the_pinned_ruff() -> None:
    hooks = ROOT / ".pre-commit-config.yaml"
    if not hooks.exists():
        pytest.skip("an sdist has no hooks")
    (rev,) = re.findall(r"ruff-pre-commit\n\s+rev: v(\S+)", hooks.read_text("utf-8"))
    assert rev == pins()["ruff"]
