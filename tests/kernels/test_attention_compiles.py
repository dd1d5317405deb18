"""Every launch configuration compiles for the cards that its table names, without one being here.

The compiler's shared memory has to stay within the table's own estimate, which is what a
configuration is chosen by.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def compiled(
    arch: int, kib: int, head_dims: str, dtypes: str, options: str, cache: Path
) -> list[dict]:
    """Run compile_attention.py in a process that is not interpreted; return its rows."""
    script = Path(__file__).with_name("compile_attention.py")
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": str(ROOT / "kernels"), "TRITON_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, str(script), str(arch), str(kib), head_dims, dtypes, options],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(rows: list[dict], num_rows: int) -> None:
    assert len(rows) == num_rows
    assert [row for row in rows if row["shared"] > row["allowed"]] == []


@pytest.mark.parametrize("options", ["every-option", "no-option"])
def test_one_configuration_compiles(options, tmp_path):
    check(compiled(90, 227, "80", "bfloat16", options, tmp_path), 4)


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "kib"), [(90, 227), (86, 99)], ids=["sm90", "sm86"])
def test_every_configuration_compiles(arch, kib, tmp_path):
    head_dims, dtypes = "16,64,128,256,512", "bfloat16,float32"
    rows = compiled(arch, kib, head_dims, dtypes, "every-option", tmp_path)
    check(rows, 5 * 2 * 3 + 1)
