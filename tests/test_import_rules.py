"""The house's rules, checked on the source: who imports whom, and where a thing may be said.

docs/architecture.md shows the same table. Every rule has a negative control on a small fake tree.
"""

import ast
import importlib
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from swarepro.registry import Registry

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 400

RUNS = frozenset(
    {
        *("errors", "registry", "points", "case", "plan", "backend", "checkpoint", "kvcache"),
        *("bundle", "capture", "runtime", "faults", "interventions", "ownership"),
        *("expect", "images", "rules", "script"),
    }
)

# Who may import whom. A key is a package or module of swarepro (the longest match counts), a value
# the prefixes that it may import; a package may always import from itself.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "": frozenset(),  # swarepro/__init__.py itself
    "__main__": frozenset({"cli"}),
    "errors": frozenset(),
    "registry": frozenset({"errors"}),
    "points": frozenset({"errors", "registry"}),
    "rules": frozenset(),
    "expect": frozenset({"errors", "registry", "points", "rules"}),
    "images": frozenset({"errors"}),
    "case": frozenset({"errors", "registry", "expect", "images"}),
    "shipped": frozenset({"errors", "registry", "case"}),
    "plan": frozenset({"errors", "registry", "case", "images"}),
    "script": frozenset({"errors", "registry", "case", "plan"}),
    "backend": frozenset({"errors", "registry"}),
    "checkpoint": frozenset({"errors", "registry", "backend"}),
    "kvcache": frozenset({"errors", "registry", "backend", "plan"}),
    "bundle": frozenset({"errors", "registry", "points", ""}),
    "capture": frozenset({"errors", "points", "bundle"}),
    "runtime": frozenset(
        {
            *("errors", "registry", "images", "points", "plan", "backend", "checkpoint"),
            *("kvcache", "capture"),
        }
    ),
    "faults": frozenset(
        {
            *("errors", "registry", "images", "checkpoint.config", "kvcache", "plan"),
            *("runtime.parts", "runtime.wrappers", "runtime.images"),
        }
    ),
    "interventions": frozenset(
        {"errors", "registry", "points", "kvcache", "plan", "runtime.parts", "runtime.wrappers"}
    ),
    "ownership": frozenset(
        {"errors", "registry", "rules", "kvcache", "plan", "runtime.parts", "runtime.wrappers"}
    ),
    "dense": frozenset({"errors", "points", "plan", "checkpoint", "capture"}),
    "hf": frozenset({"errors", "points", "plan", "checkpoint", "capture", "options"}),
    "frozen": RUNS,
    "build": RUNS | {"frozen"},
    "compare": frozenset({"errors", "registry", "points", "bundle"}),
    "evidence": frozenset({"errors", "points", "bundle", "compare"}),
    "report": frozenset(
        {
            *("errors", "points", "bundle.schema", "compare.types", "compare.determinism"),
            *(
                "compare.fills",
                "compare.assessment",
                "compare.explanation",
                "compare.floor",
                "evidence.conclusions",
            ),
        }
    ),
    "foreign": frozenset({"errors", "registry", "points", "bundle", "options"}),
    "report.foreign": frozenset({"report", "foreign.results"}),
    "options": frozenset({"errors", "points"}),
    "runs": frozenset(
        {*RUNS, "dense", "hf", "frozen", "build", "compare", "evidence", "options", ""}
    ),
    "doctor": frozenset({"errors", "backend", "runtime.routes", ""}),
    "api": frozenset(
        {
            *(*RUNS, "frozen", "build", "compare", "evidence", "report", "options", "runs"),
            *("doctor", "shipped", "foreign", ""),
        }
    ),
    "cli": frozenset(
        {"api", "report", "errors", "options", "case", "points", "evidence.conclusions", ""}
    ),
}

# Heavy libraries and who may import them at all; all other source may not.
LIBRARIES: dict[str, frozenset[str]] = {
    "torch": frozenset(
        {
            *("backend", "checkpoint", "kvcache", "capture", "runtime", "faults", "interventions"),
            *("ownership", "dense", "hf", "frozen", "build", "runs", "doctor"),
        }
    ),
    "triton": frozenset({"backend"}),
    "numpy": frozenset(
        {"checkpoint", "bundle", "capture", "runtime", "build", "runs", "compare", "foreign"}
    ),
}

# The kernels: importable from here only; they never import swarepro.
KERNEL_USERS = ("runtime.routes", "runtime.ops")
KERNEL_LIBRARIES = frozenset({"torch", "triton", "numpy"})

STANDARD_LIBRARY_ONLY = ("errors", "registry")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One parsed file; ``module`` is its dotted name."""

    path: Path
    module: str
    text: str
    tree: ast.Module

    @property
    def part(self) -> str:
        """The module below ``swarepro``, e.g. ``runtime.routes.eager``; empty for the package."""
        return self.module.partition(".")[2]

    @property
    def is_kernel(self) -> bool:
        return self.module.split(".")[0] == "swarepro_kernels"


def read_sources(root: Path) -> dict[str, Source]:
    """Parse every file of both packages under ``root``, by module name."""
    sources = {}
    for base in (root, root / "kernels"):
        for package in ("swarepro", "swarepro_kernels"):
            for path in sorted((base / package).rglob("*.py")):
                names = list(path.relative_to(base).with_suffix("").parts)
                if names[-1] == "__init__":
                    names.pop()
                text = path.read_text(encoding="utf-8")
                module = ".".join(names)
                sources[module] = Source(path=path, module=module, text=text, tree=ast.parse(text))
    return sources


def imports(source: Source, known: dict[str, Source]) -> Iterator[tuple[str, int]]:
    """Yield every module that ``source`` imports, at any depth, with its line."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = source.module.split(".")
                if source.path.name != "__init__.py":
                    package.pop()
                package = package[: len(package) - (node.level - 1)]
                base = ".".join([*package, base] if base else package)
            for alias in node.names:
                submodule = f"{base}.{alias.name}"
                yield (submodule if submodule in known else base), node.lineno


def within(part: str, prefix: str) -> bool:
    """Whether ``part`` is ``prefix`` or lies below it."""
    return part == prefix or (prefix != "" and part.startswith(prefix + "."))


def row_of(part: str) -> str | None:
    """Return the row of the table that ``part`` falls under."""
    rows = [row for row in MAY_IMPORT if within(part, row)]
    return max(rows, key=len) if rows else None


def check_edges(sources: dict[str, Source]) -> list[str]:
    """Return one line for every import that the tables do not allow."""
    wrong = []
    for source in sources.values():
        row = row_of(source.part)
        if row is None and not source.is_kernel:
            wrong.append(f"{source.module}: not in the import table; add a row to MAY_IMPORT")
            continue
        for target, line in imports(source, sources):
            reason = refuse(source, row, target)
            if reason:
                wrong.append(f"{source.module}:{line} imports {target}: {reason}")
    return wrong


def refuse(source: Source, row: str | None, target: str) -> str | None:
    """Say why ``source`` may not import ``target``; None when it may."""
    top, _, part = target.partition(".")
    if top == "swarepro":
        if source.is_kernel:
            return "kernels never import swarepro"
        allowed = MAY_IMPORT[row or ""] | {row or ""}
        return None if any(within(part, prefix) for prefix in allowed) else "not in the table"
    if top == "swarepro_kernels":
        if source.is_kernel or any(within(source.part, user) for user in KERNEL_USERS):
            return None
        return f"kernels are imported only below {' and '.join(KERNEL_USERS)}"
    if top in sys.stdlib_module_names:
        return None
    if source.is_kernel:
        return None if top in KERNEL_LIBRARIES else "kernels import torch and triton only"
    if row in STANDARD_LIBRARY_ONLY:
        return f"{row} imports the standard library only"
    if top in LIBRARIES and row not in LIBRARIES[top]:
        return f"{row} never imports {top}"
    return None


def check_cycles(sources: dict[str, Source]) -> list[str]:
    """Return one line for every import cycle between modules."""
    graph = {
        name: {target for target, _ in imports(source, sources) if target in sources} - {name}
        for name, source in sources.items()
    }
    cycles: list[str] = []
    done: set[str] = set()

    def visit(name: str, trail: list[str]) -> None:
        if name in trail:
            cycles.append(" -> ".join([*trail[trail.index(name) :], name]))
            return
        if name in done:
            return
        for target in sorted(graph[name]):
            visit(target, [*trail, name])
        done.add(name)

    for name in sorted(graph):
        visit(name, [])
    return cycles


def check_environment(sources: dict[str, Source]) -> list[str]:
    """Return every place outside backend.py that touches the process environment."""
    names = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
    wrong = []
    for source in sources.values():
        if source.module == "swarepro.backend":
            continue
        for node in ast.walk(source.tree):
            direct = (
                isinstance(node, ast.Attribute)
                and node.attr in names
                and isinstance(node.value, ast.Name)
                and node.value.id == "os"
            )
            imported = (
                isinstance(node, ast.ImportFrom)
                and node.module == "os"
                and any(alias.name in names for alias in node.names)
            )
            if direct or imported:
                wrong.append(f"{source.module}:{node.lineno} touches the environment")
    return wrong


def check_prints(sources: dict[str, Source]) -> list[str]:
    """Return every ``print(`` outside cli/."""
    return [
        f"{source.module}:{node.lineno} prints"
        for source in sources.values()
        if not within(source.part, "cli")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]


def check_names(sources: dict[str, Source], names: list[str]) -> list[str]:
    """Return every place in runtime/ that names a fault or an intervention."""
    return [
        f"{source.module} says {spelling!r}"
        for source in sources.values()
        if within(source.part, "runtime")
        for name in names
        for spelling in sorted({name, name.replace("-", "_")})
        if spelling in source.text
    ]


def check_lengths(sources: dict[str, Source]) -> list[str]:
    """Return every file over the cap."""
    return [
        f"{source.path.name}: {count} lines, the cap is {MAX_LINES}"
        for source in sources.values()
        if (count := len(source.text.splitlines())) > MAX_LINES
    ]


def registered_names() -> list[str]:
    """Return the names in every registry that faults and interventions show."""
    names: set[str] = set()
    for package in ("faults", "interventions"):
        if (ROOT / "swarepro" / package).is_dir():
            module = importlib.import_module(f"swarepro.{package}")
            for value in vars(module).values():
                if isinstance(value, Registry):
                    names.update(value.names())
    return sorted(names)


@pytest.fixture(scope="module")
def sources() -> dict[str, Source]:
    return read_sources(ROOT)


def test_every_edge_is_in_the_table(sources: dict[str, Source]) -> None:
    assert check_edges(sources) == []


def test_there_is_no_cycle(sources: dict[str, Source]) -> None:
    assert check_cycles(sources) == []


def test_only_backend_touches_the_environment(sources: dict[str, Source]) -> None:
    assert check_environment(sources) == []


def test_only_the_cli_prints(sources: dict[str, Source]) -> None:
    assert check_prints(sources) == []


def test_runtime_names_no_fault_and_no_intervention(sources: dict[str, Source]) -> None:
    names = registered_names()
    assert "skip-swa-allocation" in names
    assert check_names(sources, names) == []


def test_files_are_short(sources: dict[str, Source], capsys: pytest.CaptureFixture[str]) -> None:
    lengths = sorted(len(source.text.splitlines()) for source in sources.values())
    with capsys.disabled():
        median = statistics.median(lengths)
        sys.stdout.write(f"\n{len(lengths)} files, median {median:.0f} lines ")
    assert check_lengths(sources) == []


def test_the_architecture_page_shows_the_same_table() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("## Who may import whom")[2].partition("\n## ")[0]
    shown: dict[str, set[str]] = {}
    for row in re.findall(r"^\| (`.*?) \| (.*?)(?:;.*)? \|$", table, re.MULTILINE):
        packages, allowed = (set(re.findall(r"`([\w.]+)`", cell)) for cell in row)
        if row[1].startswith("all that runs"):
            allowed |= RUNS
        shown.update(dict.fromkeys(packages, allowed))
    assert shown.pop("swarepro_kernels") == set()
    names = {row: set(allowed) - {""} for row, allowed in MAY_IMPORT.items()}
    del names[""], names["__main__"]
    assert shown == names


HEAVY = "{'torch', 'triton', 'numpy', 'transformers', 'gguf'}"


@pytest.mark.parametrize(
    "program",
    [
        pytest.param("import swarepro.api", id="api"),
        pytest.param("import swarepro.report, swarepro.compare.types", id="report"),
        pytest.param(
            "sys.argv = ['swarepro', '--help']\n"
            "from swarepro.cli.app import main\n"
            "try:\n"
            "    main()\n"
            "except SystemExit as stop:\n"
            "    assert not stop.code, stop.code",
            id="help",
        ),
    ],
)
def test_answers_without_heavy_libraries(program: str) -> None:
    code = f"import sys\n{program}\nloaded = {HEAVY} & set(sys.modules)\nassert not loaded, loaded"
    path = os.pathsep.join([str(ROOT), str(ROOT / "kernels")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# Negative controls: each rule, broken once in a tree of one or two files.


def fake(root: Path, **files: str) -> dict[str, Source]:
    """Write a tree; a key is a path below ``root`` with ``__`` for a slash, without ``.py``."""
    for name, text in files.items():
        path = root / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return read_sources(root)


@pytest.mark.parametrize(
    ("where", "text", "complaint"),
    [
        ("swarepro__compare__align", "from swarepro.runtime import stage", "not in the table"),
        ("swarepro__compare__align", "import torch", "never imports torch"),
        ("swarepro__bundle__read", "def f():\n    import torch.nn", "never imports torch"),
        ("swarepro__report__table", "import numpy as np", "never imports numpy"),
        ("swarepro__report__table", "from swarepro.bundle import read", "not in the table"),
        ("swarepro__cli__app", "from swarepro.build import build", "not in the table"),
        ("swarepro__cli__app", "from swarepro.plan import plan", "not in the table"),
        ("swarepro__plan", "import torch", "never imports torch"),
        ("swarepro__registry", "import msgspec", "standard library only"),
        ("swarepro__errors", "from swarepro.registry import Registry", "not in the table"),
        ("swarepro__faults__skip", "from swarepro.runtime import stage", "not in the table"),
        ("swarepro__runtime__stage", "from swarepro.faults import FAULTS", "not in the table"),
        ("swarepro__runtime__stage", "import swarepro_kernels", "only below runtime.routes"),
        ("swarepro__runtime__routes__t", "import triton", "never imports triton"),
        ("kernels__swarepro_kernels__x", "import swarepro.errors", "never import swarepro"),
        ("kernels__swarepro_kernels__x", "import rich", "torch and triton only"),
        ("swarepro__stray", "", "add a row"),
    ],
)
def test_control_wrong_edge(tmp_path: Path, where: str, text: str, complaint: str) -> None:
    stage = {"swarepro__runtime__stage": ""} if where != "swarepro__runtime__stage" else {}
    read = {} if where == "swarepro__bundle__read" else {"swarepro__bundle__read": ""}
    wrong = check_edges(fake(tmp_path, **stage, **read, **{where: text}))
    assert len(wrong) == 1
    assert complaint in wrong[0]


def test_control_right_edges(tmp_path: Path) -> None:
    tree = fake(
        tmp_path,
        swarepro__runtime__parts="",
        swarepro__faults__skip="from swarepro.runtime import parts",
        swarepro__runtime__routes__eager="from swarepro_kernels import reference",
        swarepro__runtime__routes__base="from .eager import route\nfrom ..parts import X",
        swarepro__report__table="from swarepro.compare.types import Verdict",
        kernels__swarepro_kernels__reference="import torch",
    )
    assert check_edges(tree) == []
    assert check_cycles(tree) == []


def test_control_relative_import_is_resolved(tmp_path: Path) -> None:
    tree = fake(tmp_path, swarepro__faults__skip="from ..runtime.stage import Stage")
    assert check_edges(tree) == [
        "swarepro.faults.skip:1 imports swarepro.runtime.stage: not in the table"
    ]


def test_control_cycle(tmp_path: Path) -> None:
    tree = fake(
        tmp_path,
        swarepro__kvcache__pool="from swarepro.kvcache.hybrid import Hybrid",
        swarepro__kvcache__hybrid="def late():\n    from swarepro.kvcache import pool",
    )
    assert check_cycles(tree) == [
        "swarepro.kvcache.hybrid -> swarepro.kvcache.pool -> swarepro.kvcache.hybrid"
    ]


@pytest.mark.parametrize(
    "text", ["import os\nos.environ['A']", "import os\nos.getenv('A')", "from os import environ"]
)
def test_control_environment(tmp_path: Path, text: str) -> None:
    assert len(check_environment(fake(tmp_path, swarepro__capture__tap=text))) == 1
    assert check_environment(fake(tmp_path / "ok", swarepro__backend=text)) == []


def test_control_print(tmp_path: Path) -> None:
    text = "def f():\n    print('x')"
    assert check_prints(fake(tmp_path, swarepro__api=text)) == ["swarepro.api:2 prints"]
    assert check_prints(fake(tmp_path / "ok", swarepro__cli__app=text)) == []


def test_control_fault_name(tmp_path: Path) -> None:
    tree = fake(
        tmp_path,
        swarepro__runtime__stage="if 'skip_swa' in active: ...",
        swarepro__runtime__chain="if 'skip-swa' in active: ...",
        swarepro__faults__skip="NAME = 'skip-swa'",
    )
    assert check_names(tree, ["skip-swa"]) == [
        "swarepro.runtime.chain says 'skip-swa'",
        "swarepro.runtime.stage says 'skip_swa'",
    ]


def test_control_length(tmp_path: Path) -> None:
    tree = fake(tmp_path, swarepro__long="x = 1\n" * 401, swarepro__right="x = 1\n" * 400)
    assert check_lengths(tree) == ["long.py: 401 lines, the cap is 400"]
