import subprocess
import sys

import msgspec

from swarepro.bundle.environment import read_environment
from tests.unit.bundle.factory import ROOT


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return done.stdout


def test_it_names_versions_and_hardware():
    found = read_environment(gpu="NVIDIA H200")
    assert found.gpu == "NVIDIA H200"
    assert found.packages["numpy"]
    assert "no-such-package" not in found.packages
    assert found.cpu
    assert found.num_cpus >= 1
    assert msgspec.json.decode(msgspec.json.encode(found), type=type(found)) == found


def test_neither_reading_nor_comparing_imports_torch():
    code = (
        "import sys, swarepro.bundle.read, swarepro.bundle.write, swarepro.compare.divergence;"
        "from swarepro.bundle import read_environment; read_environment();"
        "print('torch' in sys.modules, 'safetensors' in sys.modules)"
    )
    assert run(code) == "False False\n"


def test_types_for_reports_import_no_numpy():
    code = (
        "import sys, swarepro.bundle.schema, swarepro.compare.types; print('numpy' in sys.modules)"
    )
    assert run(code) == "False\n"
