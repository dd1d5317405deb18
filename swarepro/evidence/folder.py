"""Files of an evidence folder: each is written once, whole, and noted in the ledger."""

import os
import shutil
from pathlib import Path
from typing import Any

import msgspec

from swarepro.errors import BundleError
from swarepro.evidence import ledger
from swarepro.evidence.schema import MANIFEST, PLAN, STATES, TRIALS


def write_once(folder: Path, name: str, content: Any, *, launch: int = 0) -> None:
    """Write ``content`` as JSON into the new file ``name`` and note it in the ledger.

    Raises:
        BundleError: the file is there already: a trial is never run twice.
    """
    data = msgspec.json.encode(content)
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(data)
        os.link(part, path)
    except FileExistsError:
        raise BundleError(f"{path} exists already; nothing in evidence is overwritten") from None
    finally:
        part.unlink(missing_ok=True)
    ledger.append(folder, "file", launch=launch, what=name, digest=ledger.sha256(data))


def clear_parts(folder: Path) -> None:
    """Remove what a killed process left half written, and nothing else."""
    for path in (*folder.glob(".*.part"), *folder.glob(f"{TRIALS}/*/*/.*.part")):
        path.unlink()
    for path in folder.glob(f"{STATES}/.*"):
        shutil.rmtree(path)


def files_of(folder: Path) -> tuple[str, ...]:
    """Return the names of all files below ``folder``, sorted; links are not followed.

    Raises:
        BundleError: something there is neither a file nor a folder.
    """
    names = []
    for root, folders, files in os.walk(folder, followlinks=False):
        for each in (*files, *folders):
            path = Path(root, each)
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise BundleError(
                    f"{path} is neither a file nor a folder; evidence is made of both"
                )
        names += [Path(root, name).relative_to(folder).as_posix() for name in files]
    return tuple(sorted(names))


def write_manifest(folder: Path) -> None:
    """Write the SHA-256 of every file, as ``sha256sum -c`` reads it."""
    lines = [
        f"{ledger.sha256((folder / name).read_bytes())}  {name}\n"
        for name in files_of(folder)
        if name != MANIFEST
    ]
    part = folder / f".{MANIFEST}.part"
    part.write_text("".join(lines), encoding="utf-8")
    part.replace(folder / MANIFEST)


def check_manifest(folder: Path) -> None:
    """Compare every file with the manifest.

    Raises:
        BundleError: a file is missing, unknown or changed, by name.
    """
    path = folder / MANIFEST
    if not folder.is_dir():
        raise BundleError(f"{folder} is no folder", hint="name one that `swarepro diagnose` left")
    if not (folder / PLAN).exists():
        raise BundleError(
            f"{folder} is no evidence: it has no {PLAN}",
            hint="`swarepro diagnose CASE --out DIR` writes an evidence folder",
        )
    if not path.is_file():
        raise BundleError(
            f"{folder} has no {MANIFEST}: the diagnosis was cut off",
            hint="go on with it: `swarepro diagnose --resume DIR`",
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"cannot read {path}: {error}") from error
    wanted: dict[str, str] = {}
    for line in text.splitlines():
        digest, separator, name = line.partition("  ")
        if not separator or len(digest) != 64 or name in wanted:
            raise BundleError(f"{path}: {line!r} is no line of it")
        wanted[name] = digest
    there = [name for name in files_of(folder) if name != MANIFEST]
    for name in there:
        if name not in wanted:
            raise BundleError(f"{folder / name} is unknown: no line of {MANIFEST} names it")
    for name, digest in wanted.items():
        if name not in there:
            raise BundleError(f"{folder / name} is missing; {MANIFEST} names it")
        if ledger.sha256((folder / name).read_bytes()) != digest:
            raise BundleError(f"{folder / name} was changed: its SHA-256 is not that in {MANIFEST}")
