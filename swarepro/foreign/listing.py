"""The files of a dump: listed with limits, and none of them outside the folder that was named."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from swarepro.errors import ForeignError

MAX_FILES = 50_000
"""Of one dump; a folder with more entries is left unread."""
MAX_DEPTH = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One file.

    Attributes:
        path: to open.
        name: relative to the dump, with ``/``, without its ending.
    """

    path: Path
    name: str


def list_files(source: Path, suffixes: tuple[str, ...]) -> tuple[Listed, ...]:
    """Return the files below ``source`` that end in one of ``suffixes``, by name.

    Args:
        source: a folder, or one such file.
        suffixes: with a dot.

    Raises:
        ForeignError: nothing is there, too much is there, or something leads out of the folder.
    """
    try:
        mode = source.stat().st_mode
    except OSError as error:
        raise ForeignError(
            f"cannot read {source}: {_reason(error)}",
            hint="name the folder of the dump, or one of its files",
        ) from None
    if stat.S_ISREG(mode):
        if not source.name.endswith(suffixes):
            raise ForeignError(
                f"{source} is no {' or '.join(suffixes)} file",
                hint="name the format that the dump has: safetensors, npy, torch or digests",
            )
        return (Listed(path=source, name=_without_suffix(source.name, suffixes)),)
    if not stat.S_ISDIR(mode):
        raise ForeignError(f"{source} is neither a folder nor a regular file")
    names = sorted(_walk(source, source.resolve(), suffixes))
    found = tuple(
        Listed(path=source / name, name=_without_suffix(name, suffixes)) for name in names
    )
    if not found:
        raise ForeignError(
            f"{source} holds no {' or '.join(suffixes)} file",
            hint="name the format that the dump has: safetensors, npy, torch or digests",
        )
    return found


def _walk(source: Path, root: Path, suffixes: tuple[str, ...]) -> Iterator[str]:
    seen = 0
    folders = [("", 0)]
    while folders:
        below, depth = folders.pop()
        try:
            entries = os.scandir(source / below)
        except OSError as error:
            raise ForeignError(f"cannot read {source / below}: {_reason(error)}") from None
        with entries:
            for entry in entries:
                seen += 1
                if seen > MAX_FILES:
                    raise ForeignError(
                        f"{source} holds more than {MAX_FILES:,} files",
                        hint="import the steps that matter: move the others elsewhere",
                    )
                name = f"{below}{entry.name}"
                if entry.is_symlink():
                    _check_link(source / name, root, is_wanted=name.endswith(suffixes))
                if entry.is_dir(follow_symlinks=False):
                    if depth + 1 > MAX_DEPTH:
                        raise ForeignError(f"{source / name} lies more than {MAX_DEPTH} deep")
                    folders.append((f"{name}/", depth + 1))
                elif name.endswith(suffixes):
                    if not entry.is_file():
                        raise ForeignError(f"{source / name} is not a regular file")
                    yield name


def _check_link(path: Path, root: Path, *, is_wanted: bool) -> None:
    try:
        real = path.resolve()
        is_folder = real.is_dir()
    except (OSError, RuntimeError) as error:  # also a loop of links
        raise ForeignError(f"cannot read {path}: {_reason(error)}") from None
    if is_folder:
        raise ForeignError(
            f"{path} is a link to a folder, which is not followed", hint="copy what it leads to"
        )
    if is_wanted and not real.is_relative_to(root):
        raise ForeignError(
            f"{path} leads out of the dump, to {real}", hint="copy the file into the folder"
        )


def _without_suffix(name: str, suffixes: tuple[str, ...]) -> str:
    return next(name.removesuffix(suffix) for suffix in suffixes if name.endswith(suffix))


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()
