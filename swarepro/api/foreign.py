"""Bundles from other engines' dumps, and dumps from bundles."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from swarepro.options import Progress, no_progress

if TYPE_CHECKING:
    from swarepro.foreign.results import ExportResult, ImportResult


def import_foreign(
    kind: str,
    source: Path,
    *,
    map_name: str,
    out: Path | None,
    sizes: Mapping[str, int] | None = None,
    model: str | None = None,
    progress: Progress = no_progress,
) -> "ImportResult":
    """Turn a dump into the bundle ``out``; without one, say what would come of it.

    Args:
        kind: ``safetensors``, ``npy``, ``torch`` or ``digests``.
        source: folder or file of the dump.
        map_name: a map that comes with swarepro, or the path of a TOML file.
        out: folder of the bundle, which must not exist; None = write nothing.
        sizes: of letters of the map's layouts, over those of the map.
        model: what the bundle says of it, instead of the map; a run that takes a tensor of the
            bundle has to name its model so.
        progress: told of every step.

    Raises:
        ForeignError: the map or the dump is not right; nothing was written.
        BundleError: the bundle cannot be written.
    """
    from swarepro.foreign import check_dump, find_map, import_dump, open_dump

    dump = open_dump(kind, source, find_map(map_name, sizes or {}, model=model))
    if out is None:
        return check_dump(dump, progress=progress)
    return import_dump(dump, out, progress=progress)


def export_bundle(bundle: Path, out: Path, *, progress: Progress = no_progress) -> "ExportResult":
    """Write a bundle as safetensors files and an index; see `swarepro.foreign.export_bundle`."""
    from swarepro.foreign import export_bundle as export

    return export(bundle, out, progress=progress)
