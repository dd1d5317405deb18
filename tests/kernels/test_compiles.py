"""The compiler, too, takes the kernels: for a data-centre and a consumer GPU that are not here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALLEST_BUDGET = 99 * 1024  # bytes of shared memory that a block may use on a consumer card


@pytest.mark.skipif(sys.platform != "linux", reason="triton has its compiler on Linux only")
@pytest.mark.parametrize("capability", ["86", "90"])
def test_every_row_wise_kernel_compiles(capability, tmp_path):
    """In a process of its own, because one process has one mode."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "kernels")])
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.compile_offline", capability],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    compiled = [line.split() for line in done.stdout.splitlines()]
    assert {name for name, _ in compiled} == {
        "_store_kv_kernel",
        "_rms_norm_kernel",
        "_rope_kernel",
        "_gelu_tanh_mul_kernel",
        "_softcap_kernel",
        "_digest_kernel",
        "_digest_finish_kernel",
    }
    assert max(int(shared) for _, shared in compiled) <= SMALLEST_BUDGET
