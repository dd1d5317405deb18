"""A dump in one of the formats that can be read: all its tensors, by name, none of them opened."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from swarepro.errors import ForeignError
from swarepro.foreign import digest_lines, npy_files, safetensors_files, torch_files
from swarepro.foreign.listing import Listed, list_files
from swarepro.foreign.tensors import Found

MAX_TENSORS = 200_000
_Reader = Callable[[Listed], Iterator[Found]]
FORMATS: dict[str, tuple[tuple[str, ...], _Reader]] = {
    "safetensors": (safetensors_files.SUFFIXES, safetensors_files.read_safetensors_file),
    "npy": (npy_files.SUFFIXES, npy_files.read_npy_file),
    "torch": (torch_files.SUFFIXES, torch_files.read_torch_file),
    "digests": (digest_lines.SUFFIXES, digest_lines.read_digest_file),
}
_TAG_SEPARATOR = "___"


def read_source(kind: str, source: Path, *, names: str) -> tuple[Found, ...]:
    """Return everything in a dump; headers are read and checked, tensors are not.

    Args:
        kind: of `FORMATS`.
        source: a folder, or one file.
        names: ``plain``: a name is the file's path and the key in it. ``tags``: a file's name is
            ``tag=value`` pairs between ``___``, in any order, and what patterns see is the value of
            the tag ``name``.

    Raises:
        ForeignError: something cannot be read or must not be, by name.
    """
    suffixes, reader = FORMATS[kind]
    found: list[Found] = []
    for listed in list_files(source, suffixes):
        is_tagged = names == "tags" and kind != "digests"
        for item in _tagged(listed, reader) if is_tagged else reader(listed):
            if len(found) == MAX_TENSORS:
                raise ForeignError(
                    f"{source} holds more than {MAX_TENSORS:,} tensors",
                    hint="import the steps that matter: move the others elsewhere",
                )
            found.append(item)
    if not found:
        raise ForeignError(f"{source} holds no tensor")
    return tuple(found)


def _tagged(listed: Listed, reader: _Reader) -> Iterator[Found]:
    tags: dict[str, str] = {}
    for part in PurePosixPath(listed.name).name.split(_TAG_SEPARATOR):
        tag, equals, value = part.partition("=")
        if not equals:
            raise ForeignError(
                f"{listed.path}: {part[:40]!r} in its name is no tag=value",
                hint="a map with names = 'plain' takes names as they are",
            )
        if tag in tags:
            raise ForeignError(f"{listed.path}: the tag {tag[:40]!r} is in its name twice")
        tags[tag] = value
    if "name" not in tags:
        raise ForeignError(f"{listed.path}: its name has no tag 'name'")
    short = Listed(path=listed.path, name=tags["name"])
    for found in reader(short):
        yield replace(found, tags=MappingProxyType(tags))
