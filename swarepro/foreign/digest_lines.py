"""JSON Lines of digests: what an engine can afford to write where tensors are too large."""

from collections.abc import Iterator

import msgspec

from swarepro.bundle.digest import is_digest
from swarepro.bundle.dtypes import NUM_BYTES
from swarepro.bundle.schema import DigestAlgorithm, OnDisk
from swarepro.errors import ForeignError
from swarepro.foreign.listing import Listed
from swarepro.foreign.tensors import Digest, Found

SUFFIXES = (".jsonl",)
_MAX_BYTES = 64 << 20
_MAX_DIMS = 8


class DigestLine(OnDisk, frozen=True, kw_only=True):
    """One line.

    Attributes:
        name: what the patterns of the map are matched against.
        dtype: safetensors' name.
        shape: of the tensor.
        digest: of its raw bytes, 32 hex digits.
        algorithm: ``xxh3_128`` or ``swd_128``; digests of another kind compare with none of a run.
        step: of the engine, or None.
        layer: likewise.
        rank: likewise.
        session: likewise.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    digest: str
    algorithm: DigestAlgorithm = "xxh3_128"
    step: int | None = None
    layer: int | None = None
    rank: int | None = None
    session: int | None = None


_LINE = msgspec.json.Decoder(DigestLine)


def read_digest_file(listed: Listed) -> Iterator[Found]:
    """Yield the digests of one file; ForeignError names the line that is no digest."""
    try:
        size = listed.path.stat().st_size
        if size > _MAX_BYTES:
            raise ForeignError(f"{listed.path}: {size:,} bytes, and {_MAX_BYTES:,} is the most")
        lines = listed.path.read_bytes().split(b"\n")
    except OSError as error:
        raise ForeignError(f"cannot read {listed.path}: {error.strerror or error}") from None
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        shown = f"{listed.path} line {number}"
        try:
            line = _LINE.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ForeignError(f"{shown}: not a digest: {error}") from None
        for wrong in _wrong(line):
            raise ForeignError(f"{shown}: {wrong}")
        fields = ("step", "layer", "rank", "session")
        tags = {name: str(value) for name in fields if (value := getattr(line, name)) is not None}
        yield Found(
            name=line.name,
            shown=shown,
            dtype=line.dtype,
            shape=line.shape,
            load=None,
            digest=Digest(value=line.digest, algorithm=line.algorithm),
            tags=tags,
        )


def _wrong(line: DigestLine) -> Iterator[str]:
    if line.dtype not in NUM_BYTES:
        yield f"unknown dtype {line.dtype[:40]!r}; known: {' '.join(NUM_BYTES)}"
    if len(line.shape) > _MAX_DIMS or any(not 0 <= extent < 1 << 48 for extent in line.shape):
        yield f"shape {str(list(line.shape))[:80]} is no shape"
    if not is_digest(line.digest):
        yield f"{line.digest[:64]!r} is no digest of 32 hex digits"
    for name in ("step", "layer", "rank", "session"):
        value = getattr(line, name)
        if value is not None and not 0 <= value < 1 << 31:
            yield f"{name} {value} is none"
