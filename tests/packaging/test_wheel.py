"""Build sdist and wheel, look inside, install the wheel and run it away from the checkout."""

import hashlib
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

pytestmark = pytest.mark.packaging

ROOT = Path(__file__).resolve().parents[2]


def call(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def build(source: Path, out: Path, *what: str) -> None:
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, *what, source)


def contents(wheel: Path) -> dict[str, str]:
    """Return the digest of every file in a wheel, by name."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist from the checkout and the wheel from the sdist."""
    out = tmp_path_factory.mktemp("dist")
    build(ROOT, out)
    return out


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (path,) = dist.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into an environment that sees this one's dependencies, not the checkout.

    A path in a .pth file brings the libraries in, but not the .pth files beside them: the editable
    install of the checkout stays out.
    """
    home = tmp_path_factory.mktemp("installed")
    venv.create(home / "venv", with_pip=False)
    python = home / "venv" / "bin" / "python"
    site = next((home / "venv" / "lib").glob("python*")) / "site-packages"
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    call(
        *(sys.executable, "-m", "pip", "--python", python, "install", "--quiet"),
        *("--no-deps", "--no-index", "--ignore-installed", wheel),
    )
    return home


def run(installed: Path, *command: str) -> str:
    """Run a program of the installed environment in an empty folder; return its output."""
    away = installed / "away"
    away.mkdir(exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["COLUMNS"] = "250"  # no name is folded
    program, *arguments = command
    done = subprocess.run(
        [installed / "venv" / "bin" / program, *arguments],
        cwd=away,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_wheel_holds_both_packages_the_cases_and_the_license(wheel: Path) -> None:
    names = set(contents(wheel))
    assert {"swarepro/py.typed", "swarepro_kernels/py.typed"} <= names
    assert {"swarepro/cli/app.py", "swarepro_kernels/reference.py"} <= names
    cases = {f"swarepro/_cases/{path.name}" for path in (ROOT / "cases").glob("*.toml")}
    assert cases
    assert {name for name in names if name.startswith("swarepro/_cases/")} == cases
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_wheel_holds_every_source_file(wheel: Path) -> None:
    source = {
        path.relative_to(base).as_posix()
        for base, package in ((ROOT, "swarepro"), (ROOT / "kernels", "swarepro_kernels"))
        for path in (base / package).rglob("*.py")
    }
    maps = {f"swarepro/foreign/maps/{x.name}" for x in ROOT.glob("swarepro/foreign/maps/*.toml")}
    assert maps
    assert source | maps <= set(contents(wheel))


def test_wheel_owns_two_names_and_none_is_kernels(wheel: Path) -> None:
    """Another project ships an import package called ``kernels``; ours would overwrite it."""
    top = {name.split("/")[0] for name in contents(wheel)}
    assert {name for name in top if not name.endswith(".dist-info")} == {
        "swarepro",
        "swarepro_kernels",
    }


def test_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    assert metadata["Name"] == "swarepro"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert set(metadata.get_all("Provides-Extra") or ()) == {"bench", "dev", "gguf", "hf"}


def test_checkout_and_sdist_build_the_same_wheel(dist: Path, wheel: Path, tmp_path: Path) -> None:
    build(ROOT, tmp_path, "--wheel")
    (direct,) = tmp_path.glob("*.whl")
    assert contents(direct) == contents(wheel)
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "Makefile", "constraints.txt"} <= names
    assert {"tests/conftest.py", "docs/architecture.md", "bench/__main__.py"} <= names
    assert not any(name.startswith((".venv", "runs/", ".git/")) for name in names)


def test_installed_package_is_the_wheels(installed: Path) -> None:
    where = run(
        installed,
        *(
            "python",
            "-c",
            "import swarepro, swarepro_kernels as k; print(swarepro.__file__, k.__file__)",
        ),
    )
    assert str(ROOT) not in where
    assert where.count("site-packages") == 2


def test_help_runs_away_from_the_checkout(installed: Path) -> None:
    output = run(installed, "swarepro", "--help")
    assert "determinism" in output
    assert "diff-boundaries" in output


def test_shipped_cases_are_found_away_from_the_checkout(installed: Path) -> None:
    output = run(installed, "swarepro", "cases", "list")
    for path in (ROOT / "cases").glob("*.toml"):
        assert path.stem in output
