"""Dumps of other engines: read without executing anything, mapped to points, made into bundles.

The functions are loaded when they are first used: a report needs `swarepro.foreign.results` alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swarepro.foreign.exporting import export_bundle
    from swarepro.foreign.importing import check_dump, import_dump, open_dump
    from swarepro.foreign.load_map import find_map, shipped_maps

_HOMES = {
    "check_dump": "importing",
    "export_bundle": "exporting",
    "find_map": "load_map",
    "import_dump": "importing",
    "open_dump": "importing",
    "shipped_maps": "load_map",
}
__all__ = (
    "check_dump",
    "export_bundle",
    "find_map",
    "import_dump",
    "open_dump",
    "shipped_maps",
)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
