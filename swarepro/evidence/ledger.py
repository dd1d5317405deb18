"""The ledger: a line for everything that was launched, written, or failed; each names the last."""

import hashlib
import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from swarepro.errors import BundleError
from swarepro.evidence.schema import LEDGER, Event, Line


def sha256(data: bytes) -> str:
    """Return the SHA-256 of ``data`` as 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def now() -> str:
    """Return the time, UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def append(
    folder: Path,
    event: Event,
    *,
    launch: int = 0,
    what: str = "",
    digest: str | None = None,
    error: str | None = None,
) -> None:
    """Add one line; only one process writes at a time."""
    path = folder / LEDGER
    lines = path.read_bytes().splitlines() if path.exists() else []
    line = Line(
        seq=len(lines),
        at=now(),
        event=event,
        launch=launch,
        what=what,
        digest=digest,
        error=error,
        previous=sha256(lines[-1]) if lines else "",
    )
    # One write of one line: a process that is killed leaves a whole line or none.
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        os.write(file, msgspec.json.encode(line) + b"\n")
    finally:
        os.close(file)


def read_ledger(folder: Path) -> tuple[Line, ...]:
    """Read all lines.

    Raises:
        BundleError: a line was changed, added or taken away.
    """
    path = folder / LEDGER
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror}") from error
    lines: list[Line] = []
    previous = ""
    for number, text in enumerate(data.splitlines()):
        try:
            line = msgspec.json.decode(text, type=Line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BundleError(f"{path}: line {number} is no line of a ledger: {error}") from error
        if line.seq != number or line.previous != previous:
            raise BundleError(
                f"{path}: line {number} does not follow the line before it: the ledger was changed"
            )
        lines.append(line)
        previous = sha256(text)
    return tuple(lines)


def mend(folder: Path) -> None:
    """Drop a last line that a killed process left unfinished."""
    path = folder / LEDGER
    data = path.read_bytes()
    os.truncate(path, data.rfind(b"\n") + 1)
