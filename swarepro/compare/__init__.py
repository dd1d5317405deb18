"""Comparing: two bundles against each other, or the repeats of one run. No torch, no GPU.

The functions are loaded when they are first used, so that a reader of `swarepro.compare.types`
(a report) does not wait for numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swarepro.compare.determinism import classify, repeats_for, upper_bound
    from swarepro.compare.divergence import compare_bundles
    from swarepro.compare.tensor_diff import diff_tensors

_HOMES = {
    "classify": "determinism",
    "compare_bundles": "divergence",
    "diff_tensors": "tensor_diff",
    "repeats_for": "determinism",
    "upper_bound": "determinism",
}
__all__ = ("classify", "compare_bundles", "diff_tensors", "repeats_for", "upper_bound")


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
