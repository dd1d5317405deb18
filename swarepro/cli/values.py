"""Option values that are more than one number: token ids, sizes, chunk lists, globs, run ids."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from swarepro.case import TokenId
from swarepro.errors import UsageError
from swarepro.points import ALL

MAX_ID_FILE_BYTES = 16 * 1024**2
_MAX_DIGITS = 18
_UNITS = {"": 1, "b": 1, "kib": 1024, "mib": 1024**2, "gib": 1024**3, "tib": 1024**4}
_LAYERS_TRIED = 256


def parse_tokens(text: str) -> tuple[int, ...]:
    """Return the ids of ``2,818,5279`` or of the JSON file ``@ids.json``. Raises UsageError."""
    if text.startswith("@"):
        return _read_ids(Path(text[1:]))
    return _parse_ints(text, option="--tokens", example="2,818,5279 or @ids.json", least=0)


def parse_chunks(text: str) -> tuple[int, ...]:
    """Return the chunk sizes of ``32,21``. Raises UsageError."""
    return _parse_ints(text, option="--chunks", example="32,21", least=1)


def parse_size(text: str) -> int:
    """Return the bytes of ``1000``, ``512KiB``, ``1.5 GiB``. Raises UsageError."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?) ?([A-Za-z]*)", text.strip(), re.ASCII)
    unit = _UNITS.get(match.group(2).lower()) if match else None
    if match is None or unit is None:
        raise UsageError(
            f"--max-bundle-bytes {text!r} is not a size",
            hint="write a number of bytes, or one with KiB, MiB or GiB, e.g. 512MiB",
        )
    return int(float(match.group(1)) * unit) if "." in match.group(1) else int(match[1]) * unit


def parse_letter_sizes(text: str | None) -> dict[str, int]:
    """Return the sizes of ``H=8,K=4``; none for None. Raises UsageError."""
    sizes: dict[str, int] = {}
    for part in [] if text is None else text.split(","):
        letter, _, number = part.strip().partition("=")
        is_letter = len(letter) == 1 and "A" <= letter <= "Z" and letter not in sizes
        if not is_letter or re.fullmatch(r"[1-9][0-9]{0,8}", number, re.ASCII) is None:
            raise UsageError(
                f"--sizes: {part.strip()[:40]!r} is no LETTER=NUMBER, or the letter is there twice",
                hint="write --sizes H=8,K=4,D=256",
            )
        sizes[letter] = int(number)
    return sizes


def parse_globs(text: str) -> tuple[str, ...]:
    """Return the name globs of ``L0_*,logits``; each must match a point of some layer."""
    globs = tuple(part.strip() for part in text.split(","))
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in _names()):
            raise UsageError(
                f"--points {text!r}: {glob!r} matches no capture point",
                hint="`swarepro points` lists them; write a layer's number for {layer}, or *",
            )
    return globs


def check_run_id(run_id: str) -> str:
    """Return ``run_id`` if it is the name of one folder. Raises UsageError."""
    if run_id in ("", ".", "..") or not run_id.isprintable() or re.search(r"[/\\]", run_id):
        raise UsageError(
            f"--run-id {run_id!r} is not a folder name",
            hint="it names one folder below --out, without slashes and control characters",
        )
    return run_id


def _names() -> list[str]:
    layers = range(_LAYERS_TRIED)
    return [
        name
        for point in ALL
        for name in (
            [point.concrete(layer) for layer in layers] if "{layer}" in point.name else [point.name]
        )
    ]


def _parse_ints(text: str, *, option: str, example: str, least: int) -> tuple[int, ...]:
    values = []
    for index, part in enumerate(text.split(",")):
        digits = part.strip()
        is_number = digits.isascii() and digits.isdecimal() and len(digits) <= _MAX_DIGITS
        if not is_number or int(digits) < least:
            shown = part if len(part) <= 40 else f"{part[:40]}..."
            raise UsageError(
                f"{option}: item {index} is {shown!r}, wanted an integer of at least {least}",
                hint=f"write {option} {example}",
            )
        values.append(int(digits))
    return tuple(values)


def _read_ids(path: Path) -> tuple[int, ...]:
    where = f"--tokens @{path}"
    try:
        with path.open("rb") as file:
            data = file.read(MAX_ID_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{where}: cannot be read: {reason}") from None
    if len(data) > MAX_ID_FILE_BYTES:
        raise UsageError(f"{where}: is larger than {MAX_ID_FILE_BYTES // 1024**2} MiB")
    hint = "the file holds one JSON list of token ids, e.g. [2, 818, 5279]"
    try:
        ids = msgspec.json.decode(data, type=tuple[TokenId, ...])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{where}: is not a list of token ids: {error}", hint=hint) from None
    if not ids:
        raise UsageError(f"{where}: holds no token id", hint=hint)
    return ids
