"""Bundles: what a run leaves on disk, and the only link between running and judging.

The functions are loaded when they are first used, so that a reader of `swarepro.bundle.schema`
(a report) does not wait for numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swarepro.bundle.digest import digest_bytes
    from swarepro.bundle.environment import read_environment
    from swarepro.bundle.read import Bundle, open_bundle
    from swarepro.bundle.write import BundleWriter

_HOMES = {
    "Bundle": "read",
    "BundleWriter": "write",
    "digest_bytes": "digest",
    "open_bundle": "read",
    "read_environment": "environment",
}
__all__ = ("Bundle", "BundleWriter", "digest_bytes", "open_bundle", "read_environment")


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
