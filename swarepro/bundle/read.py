"""Reading a bundle: checked before it is believed, its tensors mapped and never read in."""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from swarepro.bundle.checks import check_records, inside, is_regular
from swarepro.bundle.device_digest import DeviceDigest
from swarepro.bundle.digest import digest_bytes
from swarepro.bundle.dtypes import DTYPES, tensor_bytes
from swarepro.bundle.manifest_checks import check_manifest
from swarepro.bundle.schema import (
    MANIFEST,
    RECORDS,
    TENSORS,
    DigestAlgorithm,
    FileEntry,
    Manifest,
    TensorRecord,
)
from swarepro.bundle.schema_v1 import ManifestV1, upgraded
from swarepro.bundle.seal import seal_of
from swarepro.bundle.tensorfile import Header, map_tensor, read_header
from swarepro.errors import BundleError

WINDOW_BYTES = 1 << 21
"""How much of a large tensor is mapped at once while it is walked."""
_JSON_ERRORS = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


class _Version(msgspec.Struct):
    schema_version: int


_VERSION = msgspec.json.Decoder(_Version)
_MANIFESTS: dict[int, msgspec.json.Decoder[Manifest] | msgspec.json.Decoder[ManifestV1]] = {
    1: msgspec.json.Decoder(ManifestV1),
    2: msgspec.json.Decoder(Manifest),
}
KNOWN_VERSIONS = tuple(_MANIFESTS)
_RECORD = msgspec.json.Decoder(TensorRecord)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A checked bundle. It holds no open file.

    Attributes:
        path: as it was given.
        manifest: of the run.
        records: in execution order.
    """

    path: Path
    manifest: Manifest
    records: tuple[TensorRecord, ...]
    _headers: dict[str, Header] = field(repr=False)

    @property
    def num_stored(self) -> int:
        """Records whose tensor is stored; the others have a digest only."""
        return sum(record.file is not None for record in self.records)

    def tensor(self, record: TensorRecord) -> npt.NDArray[np.generic]:
        """Check and map a stored tensor.

        Args:
            record: one of `records` with a file.

        Returns:
            A read-only view of the file, of the record's shape and of the dtype's `DType.view`
            (``BF16`` as uint16). The mapping lives as long as the view.

        Raises:
            BundleError: its bytes are not those of the record's digest.
        """
        self.check(record)
        return self._view(self._map(record), record, record.shape)

    def rows(self, record: TensorRecord, start: int, stop: int) -> npt.NDArray[np.generic]:
        """Map rows ``[start, stop)`` of a stored tensor without checking it; see `tensor`."""
        row_bytes = tensor_bytes(record.dtype, record.shape[1:])
        data = self._map(record, start=start * row_bytes, stop=stop * row_bytes)
        return self._view(data, record, (stop - start, *record.shape[1:]))

    def check(self, record: TensorRecord) -> None:
        """Hash a stored tensor; BundleError when its bytes are not those of its record."""
        found = self.digest(record, record.algorithm)
        if found != record.digest:
            raise BundleError(
                f"{self.path}/{record.file}: tensor {record.key!r} has digest {found};"
                f" its record says {record.digest}",
                hint="the file was changed or damaged after the run",
            )

    def digest(self, record: TensorRecord, algorithm: DigestAlgorithm) -> str:
        """Hash the stored bytes of a tensor by ``algorithm``; BundleError when it is not stored."""
        num_bytes = tensor_bytes(record.dtype, record.shape)
        if algorithm == "xxh3_128" and num_bytes <= WINDOW_BYTES:
            return digest_bytes(self._map(record))
        state = (
            xxhash.xxh3_128()
            if algorithm == "xxh3_128"
            else DeviceDigest(record.dtype, record.shape)
        )
        for start in range(0, num_bytes, WINDOW_BYTES):
            stop = min(start + WINDOW_BYTES, num_bytes)
            state.update(self._map(record, start=start, stop=stop))
        return str(state.hexdigest())

    def _map(self, record: TensorRecord, *, start: int = 0, stop: int | None = None) -> memoryview:
        if record.file is None:
            raise BundleError(
                f"{self.path}: {record.key} of step {record.step} was captured as a digest only",
                hint="run again with --store tensor",
            )
        header = self._headers[record.file]
        return map_tensor(self.path / record.file, header, record.key, start=start, stop=stop)

    @staticmethod
    def _view(
        data: memoryview, record: TensorRecord, shape: tuple[int, ...]
    ) -> npt.NDArray[np.generic]:
        return np.frombuffer(data, dtype=DTYPES[record.dtype].view).reshape(shape)

    def verify(self) -> int:
        """Hash every stored tensor and return how many there are; BundleError names a bad one."""
        for record in self.records:
            if record.file is not None:
                self.check(record)
        return self.num_stored


def open_bundle(path: Path) -> Bundle:
    """Open and check the bundle at ``path``; tensors' bytes are checked when they are opened.

    Raises:
        BundleError: whatever is missing, cut, changed, unknown or contradictory, by name.
    """
    if not path.is_dir():
        what = "is not a directory" if path.exists() else "does not exist"
        raise BundleError(
            f"no bundle: {path} {what}",
            hint="name the folder that a run wrote, e.g. runs/RUN_ID",
        )
    root = path.resolve()
    manifest = _read_manifest(path, root)
    entries: dict[str, FileEntry] = {}
    for entry in manifest.files:
        if entry.path in entries:
            raise BundleError(f"{path / MANIFEST}: {entry.path!r} is listed twice")
        entries[entry.path] = entry
        _check_size(inside(root, entry.path), entry)
    if RECORDS not in entries:
        raise BundleError(f"{path / MANIFEST}: {RECORDS} is not listed")
    records = _read_records(path, entries[RECORDS], manifest)
    headers = {name: read_header(path / name) for name in entries if name != RECORDS}
    _check_stored(path, records, headers)
    return Bundle(path=path, manifest=manifest, records=records, _headers=headers)


def _read_manifest(path: Path, root: Path) -> Manifest:
    file = path / MANIFEST
    if not is_regular(file):
        raise _no_manifest(path)
    if not file.resolve().is_relative_to(root):
        raise BundleError(f"{file} leads out of the bundle to {file.resolve()}")
    text = _read(file)
    try:
        version = _VERSION.decode(text).schema_version
        if version not in KNOWN_VERSIONS:
            known = ", ".join(map(str, KNOWN_VERSIONS))
            raise BundleError(
                f"{file}: unknown schema_version {version}; this swarepro reads {known}",
                hint="read it with the swarepro that wrote it, or a newer one",
            )
        written = _MANIFESTS[version].decode(text)
    except _JSON_ERRORS as error:
        raise BundleError(f"{file}: not a manifest: {error}") from error
    found = seal_of(written)
    if found != written.seal:
        raise BundleError(
            f"{file}: its seal is {written.seal or 'missing'}; its content has {found}",
            hint="the manifest was changed or damaged after the run",
        )
    if msgspec.json.format(text, indent=-1) != msgspec.json.encode(written):
        raise BundleError(
            f"{file}: its text is not what its fields give: a field is left out, there twice, out"
            " of order or written otherwise",
            hint="the manifest was changed after the run",
        )
    manifest = upgraded(written) if isinstance(written, ManifestV1) else written
    check_manifest(file, manifest)
    return manifest


def _no_manifest(path: Path) -> BundleError:
    below = sorted(child.parent.name for child in path.glob(f"*/{MANIFEST}"))
    if below:
        shown = ", ".join(below[:8]) + (", ..." if len(below) > 8 else "")
        return BundleError(
            f"no bundle: {path} has no {MANIFEST}", hint=f"it holds bundles: {shown}"
        )
    if (path / RECORDS).exists() or (path / TENSORS).exists():
        return BundleError(
            f"{path} has no {MANIFEST}: the run that wrote it did not finish",
            hint="remove it and run again",
        )
    return BundleError(f"no bundle: {path} has no {MANIFEST}")


def _read_records(path: Path, entry: FileEntry, manifest: Manifest) -> tuple[TensorRecord, ...]:
    file = path / RECORDS
    text = _read(file)
    found = digest_bytes(text)
    if found != entry.digest:
        raise BundleError(
            f"{file}: its digest is {found}; the manifest says {entry.digest or 'nothing'}",
            hint="the file was changed or damaged after the run",
        )
    try:
        records = tuple(_RECORD.decode_lines(text))
    except _JSON_ERRORS as error:
        raise BundleError(f"{file}: not records: {error}") from error
    if len(records) != manifest.num_records:
        raise BundleError(
            f"{file}: {len(records)} records; the manifest says {manifest.num_records}"
        )
    check_records(file, records, manifest)
    return records


def _check_stored(
    path: Path, records: tuple[TensorRecord, ...], headers: dict[str, Header]
) -> None:
    num_stored = 0
    for record in records:
        if record.file is None:
            continue
        num_stored += 1
        if record.file not in headers:
            raise BundleError(f"{path / record.file}: no file for tensors ({record.key!r})")
        entry = headers[record.file].entries.get(record.key)
        if entry is None:
            raise BundleError(f"{path / record.file}: tensor {record.key!r} is missing")
        if entry.dtype != record.dtype or entry.shape != record.shape:
            raise BundleError(
                f"{path / record.file}: tensor {record.key!r} is {entry.dtype}"
                f" {list(entry.shape)}; its record says {record.dtype} {list(record.shape)}"
            )
    if num_stored != sum(len(header.entries) for header in headers.values()):
        named = {(record.file, record.key) for record in records}
        for name, header in headers.items():
            for key in header.entries:
                if (name, key) not in named:
                    raise BundleError(f"{path / name}: tensor {key!r} has no record")
        raise BundleError(f"{path}: two records share one stored tensor")


def _check_size(file: Path, entry: FileEntry) -> None:
    size = file.stat().st_size
    if size != entry.num_bytes:
        what = "cut" if size < entry.num_bytes else "longer"
        raise BundleError(f"{file} is {what}: {size} bytes; the manifest says {entry.num_bytes}")


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise BundleError(f"cannot read {file}: {error.strerror}") from error
