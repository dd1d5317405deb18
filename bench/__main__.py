"""Run every ``*_bench`` module of this folder and print one table.

A ratio over its limit is shown, not judged: times on a shared machine make no verdict. Only a
benchmark that crashes makes the exit code non-zero.
"""

import argparse
import importlib
import pkgutil

from rich.console import Console
from rich.table import Table
from rich.text import Text

import bench


def main() -> None:
    """Run the benchmarks named on the command line, or all."""
    names = sorted(
        module.name.removesuffix("_bench")
        for module in pkgutil.iter_modules(bench.__path__)
        if module.name.endswith("_bench")
    )
    parser = argparse.ArgumentParser(prog="python -m bench", description="Ratios, not times.")
    parser.add_argument("name", nargs="*", help=f"of {', '.join(names)}; all when left out")
    chosen = parser.parse_args().name or names
    if unknown := sorted(set(chosen) - set(names)):
        parser.error(f"no such benchmark: {', '.join(unknown)}")
    log = Console(stderr=True)
    table = Table(title="Ratios, measured in this run")
    table.add_column("what", overflow="fold")
    table.add_column("ratio", justify="right")
    table.add_column("limit", justify="right")
    table.add_column("within")
    for name in chosen:
        log.print(Text(f"measuring {name} ..."))
        for label, ratio, limit in importlib.import_module(f"bench.{name}_bench").run():
            table.add_row(
                Text(f"{name}: {label}"),
                f"{ratio:.3f}",
                "" if limit is None else f"{limit:.3g}",
                "" if limit is None else Text("yes" if ratio <= limit else "NO"),
            )
    Console().print(table)


if __name__ == "__main__":
    main()
