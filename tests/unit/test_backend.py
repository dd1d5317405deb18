"""Devices are met or refused, and a process has one Triton mode."""

import os
import subprocess
import sys

import pytest
import torch

from swarepro import backend
from swarepro.backend import Backend, choose_device
from swarepro.errors import BackendError

INTERPRET = Backend(device="cpu", triton="interpret")
COMPILED = Backend(device="cuda", triton="compiled")


@pytest.mark.parametrize("device", ["tpu", "cpu:1", "", "CUDA"])
def test_unknown_devices_are_refused(device):
    with pytest.raises(BackendError, match="unknown device"):
        choose_device(device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_refused_and_auto_is_the_cpu():
    with pytest.raises(BackendError, match="finds no CUDA device"):
        choose_device("cuda")
    assert choose_device("auto") == choose_device("cpu") == "cpu"


def test_without_triton_its_routes_are_refused(monkeypatch):
    monkeypatch.setattr(backend, "find_spec", lambda name: None)
    with pytest.raises(BackendError, match="needs Triton, which is not installed") as caught:
        INTERPRET.activate()
    assert "--route eager" in caught.value.hint
    Backend(device="cpu", triton="off").activate()


def activated(mode: str, *, environment: dict[str, str], before: str = "") -> str:
    """Return what a fresh process says to the activation of ``mode``."""
    code = (
        f"import os; {before}\n"
        "from swarepro.backend import Backend\n"
        "from swarepro.errors import BackendError\n"
        f"try: Backend(device='cpu', triton={mode!r}).activate()\n"
        "except BackendError as error: print(error.message)\n"
        "else: print('mode', os.environ.get('TRITON_INTERPRET'))\n"
    )
    clean = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    clean["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("mode", "environment", "before", "said"),
    [
        ("interpret", {}, "", "mode 1"),
        ("compiled", {}, "", "mode None"),
        ("off", {"TRITON_INTERPRET": "yes"}, "", "mode yes"),
        ("compiled", {"TRITON_INTERPRET": "true"}, "", "TRITON_INTERPRET is set"),
        ("interpret", {}, "import triton", "loaded Triton for the other mode"),
        ("compiled", {}, "import triton", "mode None"),
    ],
)
def test_one_process_has_one_mode(mode, environment, before, said):
    assert said in activated(mode, environment=environment, before=before)
