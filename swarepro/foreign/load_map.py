"""Finding and decoding a map: one that comes with swarepro, by its name, or a TOML file."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from swarepro.bundle.checks import is_regular
from swarepro.errors import ForeignError
from swarepro.foreign.maps import ForeignMap, PointRule, SpanRow, StepRow
from swarepro.foreign.rules import Rules, check_map
from swarepro.registry import did_you_mean

MAX_MAP_BYTES = 1 << 20
_NOTHING: Mapping[str, int] = MappingProxyType({})
_TABLES: dict[str, type[msgspec.Struct]] = {
    "points": PointRule,
    "steps": StepRow,
    "spans": SpanRow,
}


def shipped_maps() -> dict[str, Path]:
    """Return the maps that come with swarepro, by name, sorted."""
    folder = Path(__file__).parent / "maps"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def find_map(
    name_or_path: str, sizes: Mapping[str, int] = _NOTHING, *, model: str | None = None
) -> Rules:
    """Return a shipped map by name, or the map of a TOML path.

    Args:
        name_or_path: of the map.
        sizes: of letters, over those of the map.
        model: instead of the map's; None = as in the map.

    Raises:
        ForeignError: no such map, or one that is not right; it names the key.
    """
    shipped = shipped_maps()
    path = shipped.get(name_or_path, Path(name_or_path))
    if name_or_path not in shipped and path.suffix != ".toml" and not path.is_file():
        raise ForeignError(
            f"no such map: {name_or_path!r}",
            hint=did_you_mean(name_or_path, shipped)
            or f"known: {', '.join(shipped)}; or the path of a TOML file",
        )
    return read_map(path, sizes, model=model)


def read_map(path: Path, sizes: Mapping[str, int] = _NOTHING, *, model: str | None = None) -> Rules:
    """Read and check one map; see `find_map`."""
    if path.exists() and not is_regular(path):  # a pipe would block its reader
        raise ForeignError(f"the map {path} is not a regular file")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_MAP_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ForeignError(f"cannot read the map {path}: {reason}") from None
    if len(data) > MAX_MAP_BYTES:
        raise ForeignError(f"the map {path} is larger than {MAX_MAP_BYTES:,} bytes")
    try:
        table = tomllib.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        raise ForeignError(f"{path} is not valid TOML: {error}") from None
    try:
        spec = msgspec.convert(table, ForeignMap)
    except msgspec.ValidationError as error:
        raise ForeignError(f"{path}: {error}", hint=_suggest_key(str(error))) from None
    spec = msgspec.structs.replace(
        spec, sizes={**spec.sizes, **sizes}, model=spec.model if model is None else model
    )
    return check_map(spec, str(path))


def _suggest_key(message: str) -> str | None:
    """Suggest a key for msgspec's "unknown field `x` - at `$.points[0]`"."""
    match = re.search(r"unknown field `([^`]+)`(?: - at `([^`]+)`)?", message)
    if not match:
        return None
    unknown, where = match.groups()
    table = re.sub(r"\[[^]]*\]", "", where or "").rpartition(".")[2]
    known = _TABLES.get(table, ForeignMap).__struct_fields__
    return did_you_mean(unknown, known) or f"known here: {', '.join(known)}"
