"""The conclusions that a folder holds, against those that follow from it."""

from pathlib import Path

import msgspec

from swarepro.errors import BundleError
from swarepro.evidence.check import read_evidence
from swarepro.evidence.conclude import conclude
from swarepro.evidence.conclusions import Conclusions
from swarepro.evidence.schema import CONCLUSIONS


def conclusions_data(conclusions: Conclusions) -> bytes:
    """Return the bytes of `CONCLUSIONS`."""
    return msgspec.json.format(msgspec.json.encode(conclusions), indent=2) + b"\n"


def checked_conclusions(folder: Path) -> Conclusions:
    """See `swarepro.api.conclude_evidence`."""
    derived = conclude(read_evidence(folder))
    path = folder / CONCLUSIONS
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror}") from error
    if data == conclusions_data(derived):
        return derived
    raise BundleError(
        f"{path} says what does not follow from the evidence: {_difference(data, derived)}"
    )


def _difference(data: bytes, derived: Conclusions) -> str:
    """Name the first field that is not as derived."""
    try:
        found = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return f"it cannot be read: {error}"
    wanted = msgspec.to_builtins(derived)
    if not isinstance(found, dict):
        return "it is no JSON object"
    for field, value in wanted.items():
        if found.get(field) != msgspec.json.decode(msgspec.json.encode(value)):
            return f"{field!r} is not what is derived"
    extra = sorted(found.keys() - wanted.keys())
    return f"it has {', '.join(extra)} besides" if extra else "its layout was changed"
