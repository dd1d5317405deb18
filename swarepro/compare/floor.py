"""A noise floor on disk: how far legal variants of a run are apart, by point and layer."""

from collections.abc import Iterable
from math import isfinite
from pathlib import Path
from typing import Literal

import msgspec

from swarepro import points
from swarepro.bundle.schema import Environment, Manifest, OnDisk
from swarepro.errors import BundleError, IncomparableError, SwareproError

FLOOR_VERSION = 2
"""Goes up with the format, and with the unit of error in `swarepro.compare.spread`."""
Kind = Literal["order", "precision"]
"""What a variant changes: the order of reductions, or the precision that they are computed in."""
_MOST_BYTES = 1 << 26
_COARSER = ("fp64", "fp32", "fp16", "bf16")
"""Dtypes of runs, from fine to coarse."""


class FloorVariant(OnDisk, frozen=True, kw_only=True):
    """One legal variant that was run beside the case.

    Attributes:
        name: e.g. ``chunks 19``.
        kind: ``order`` or ``precision``.
        boundaries: that were compared with the case's own run.
        tokens_differ: whether it generated other tokens; rows after the first such are left out.
    """

    name: str
    kind: Kind
    boundaries: int
    tokens_differ: bool


class FloorEntry(OnDisk, frozen=True, kw_only=True):
    """The spread of one point at one layer: the largest of all variants of a kind.

    Attributes:
        point: the declared point, e.g. ``L{layer}_o_proj``.
        layer: global layer id, or None.
        order: largest error of a vector (see `swarepro.compare.spread`) among ``order`` variants.
        order_l2: largest relative L2 among them.
        precision: likewise among ``precision`` variants.
        precision_l2: likewise.
    """

    point: str
    layer: int | None
    order: float
    order_l2: float
    precision: float
    precision_l2: float


class Floor(OnDisk, frozen=True, kw_only=True):
    """What `swarepro calibrate` writes.

    Attributes:
        floor_version: of this format.
        model: the case's.
        dtype: that the case was run in.
        device: likewise.
        case: its name.
        variants: that were run.
        entries: by point and layer, in execution order.
        environment: of the machine.
    """

    floor_version: int
    model: str
    dtype: str
    device: str
    case: str
    variants: tuple[FloorVariant, ...]
    entries: tuple[FloorEntry, ...]
    environment: Environment


def write_floor(path: Path, floor: Floor) -> None:
    """Write ``floor``; BundleError when the file exists already or cannot be written."""
    data = msgspec.json.format(msgspec.json.encode(floor), indent=1) + b"\n"
    try:
        with path.open("xb") as file:
            try:
                file.write(data)
                file.flush()
            except BaseException:
                path.unlink()  # half a floor is none, and would block the next
                raise
    except FileExistsError:
        raise BundleError(
            f"{path} exists already; a floor is never overwritten",
            hint="choose another --out, or remove it first",
        ) from None
    except OSError as error:
        raise BundleError(f"cannot write {path}: {error.strerror}") from error


def read_floor(path: Path) -> Floor:
    """Read a floor.

    Raises:
        BundleError: it cannot be read, or says what no floor can say.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise BundleError(
                f"{path} is too large for a floor", hint="`swarepro calibrate CASE` makes one"
            )
        floor = msgspec.json.decode(path.read_bytes(), type=Floor)
    except OSError as error:
        raise BundleError(
            f"cannot read {path}: {error.strerror}", hint="`swarepro calibrate CASE` makes one"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(
            f"{path} is no floor: {error}", hint="`swarepro calibrate CASE` makes one"
        ) from error
    if floor.floor_version != FLOOR_VERSION:
        raise BundleError(
            f"{path}: floor_version {floor.floor_version}; this swarepro reads {FLOOR_VERSION}",
            hint="its numbers mean something else here; `swarepro calibrate CASE` makes a new one",
        )
    _check_entries(path, floor.entries)
    return floor


def _check_entries(path: Path, entries: Iterable[FloorEntry]) -> None:
    seen: set[tuple[str, int | None]] = set()
    for entry in entries:
        what = f"{path}: {entry.point} at layer {entry.layer}"
        try:
            points.by_name(entry.point)
        except SwareproError as error:
            raise BundleError(f"{path}: {error.message}", hint=error.hint) from None
        if (entry.point, entry.layer) in seen:
            raise BundleError(f"{what} is there twice")
        seen.add((entry.point, entry.layer))
        for name in ("order", "order_l2", "precision", "precision_l2"):
            value = getattr(entry, name)
            if not (isfinite(value) and value >= 0):
                raise BundleError(f"{what}: {name} is {value}, not 0 or more")


def check_floor(path: Path, floor: Floor, baseline: Manifest, target: Manifest) -> None:
    """Raise IncomparableError where ``floor`` says nothing about a pair of runs."""
    for side, manifest in (("baseline", baseline), ("target", target)):
        if manifest.model != floor.model:
            raise IncomparableError(
                f"{path} is a floor of {floor.model}; the {side} ran {manifest.model}",
                hint=f"make one: swarepro calibrate --model {manifest.model} ...",
            )
    dtypes = _dtype(baseline), _dtype(target)
    # Where they differ, what the coarser one rounds is what lies between the runs.
    wanted = max(dtypes, key=_COARSER.index) if set(dtypes) <= set(_COARSER) else None
    if floor.dtype not in ((wanted,) if wanted is not None else dtypes):
        coarser = (
            "" if wanted is None else f" coarser dtype: swarepro calibrate --dtype {wanted} ..."
        )
        raise IncomparableError(
            f"{path} is a floor of {floor.dtype}; the runs are {dtypes[0]} and {dtypes[1]}",
            hint=f"calibrate in the{coarser or ' dtype of one of them'}",
        )


def _dtype(manifest: Manifest) -> str:
    """Return what the weights were rounded to: a reference widens them, and is no finer."""
    return str(manifest.case.get("dtype", manifest.backend.dtype))
