"""One test, two machines: `device` is the interpreter's CPU, or CUDA where `-m gpu` is chosen.

Every test that takes `device` exists twice, ``[interpret]`` and ``[cuda]``; the second is marked
gpu. One process has one Triton mode, so the one that does not fit is skipped with its reason.
"""

import os

import pytest
import torch


@pytest.fixture(
    scope="session",
    params=["interpret", pytest.param("cuda", marks=pytest.mark.gpu)],
)
def device(request: pytest.FixtureRequest) -> torch.device:
    """Where the kernels of this test run."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if interpreted is not (request.param == "interpret"):
        pytest.skip("this process's kernels are for the other device; `-m gpu` chooses CUDA")
    return torch.device("cpu" if interpreted else "cuda")
