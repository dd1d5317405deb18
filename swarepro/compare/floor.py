"""A noise floor on disk: how far legal variants of a run are apart, by point and layer."""

from collections.abc import Iterable, Sequence
from math import isfinite
from pathlib import Path
from typing import Literal

import msgspec

from swarepro import points
from swarepro.bundle.digest import digest_bytes
from swarepro.bundle.schema import Environment, Manifest, OnDisk, StageEntry, TensorRecord
from swarepro.compare.settings import weights_dtype
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
        positions: of its longest session. What rounding does grows with the keys that a query
            sees: of a longer run the floor says nothing.
        variants: that were run.
        entries: by point and layer, in execution order.
        environment: of the machine.
        seal: digest over all of the above, set where the floor is written.
    """

    floor_version: int
    model: str
    dtype: str
    device: str
    case: str
    positions: int
    variants: tuple[FloorVariant, ...]
    entries: tuple[FloorEntry, ...]
    environment: Environment
    seal: str = ""


class _Version(msgspec.Struct):
    floor_version: int


def write_floor(path: Path, floor: Floor) -> None:
    """Write ``floor``; BundleError when the file exists already or cannot be written."""
    sealed = msgspec.structs.replace(floor, seal=_seal_of(floor))
    data = msgspec.json.format(msgspec.json.encode(sealed), indent=1) + b"\n"
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
        data = path.read_bytes()
        version = msgspec.json.decode(data, type=_Version).floor_version
        if version != FLOOR_VERSION:
            raise BundleError(
                f"{path}: floor_version {version}; this swarepro reads {FLOOR_VERSION}",
                hint="its numbers mean something else here; `swarepro calibrate CASE` makes a new"
                " one",
            )
        floor = msgspec.json.decode(data, type=Floor)
    except OSError as error:
        raise BundleError(
            f"cannot read {path}: {error.strerror}", hint="`swarepro calibrate CASE` makes one"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(
            f"{path} is no floor: {error}", hint="`swarepro calibrate CASE` makes one"
        ) from error
    if floor.seal != _seal_of(floor):
        raise BundleError(
            f"{path} was changed after it was measured: its seal is not that of what it says",
            hint="measure it again: `swarepro calibrate CASE`",
        )
    _check_entries(path, floor.entries)
    return floor


def _seal_of(floor: Floor) -> str:
    return digest_bytes(msgspec.json.encode(msgspec.structs.replace(floor, seal="")))


def entry_of(floor: Floor, record: TensorRecord, stages: Sequence[StageEntry]) -> FloorEntry | None:
    """Return what ``floor`` says of a boundary; None where it says nothing.

    What crosses a stage edge is what the layer before it put out: a floor of one stage knows it.

    Args:
        floor: of the model.
        record: of the boundary.
        stages: of its run.
    """
    places = [(record.point, record.layer)]
    if record.point == points.BOUNDARY_SEND_HIDDEN.name:
        places.append((points.AFTER_LAYER.name, stages[record.stage].layer_end - 1))
    if record.point == points.BOUNDARY_RECV_HIDDEN.name:
        places.append((points.AFTER_LAYER.name, stages[record.stage].layer_start - 1))
    known = {(entry.point, entry.layer): entry for entry in floor.entries}
    return next((known[place] for place in places if place in known), None)


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
    _check_dtypes(path, floor, baseline, target)
    for side, manifest in (("baseline", baseline), ("target", target)):
        have = num_positions(manifest)
        if have > floor.positions:
            raise IncomparableError(
                f"{path} was measured on sessions of up to {floor.positions} rows; the"
                f" {side} has one of {have}, and what rounding does grows with the keys that a"
                " query sees",
                hint="calibrate with a prompt (and --decode) at least as long",
            )


def num_positions(manifest: Manifest) -> int:
    """Return how many positions the longest session of a run has."""
    return max((span.end for step in manifest.steps for span in step.spans), default=0)


def _check_dtypes(path: Path, floor: Floor, baseline: Manifest, target: Manifest) -> None:
    dtypes = weights_dtype(baseline), weights_dtype(target)
    # Where they differ, what the coarser one rounds is what lies between the runs.
    wanted = max(dtypes, key=_COARSER.index) if set(dtypes) <= set(_COARSER) else None
    if floor.dtype in ((wanted,) if wanted is not None else dtypes):
        return
    coarser = "" if wanted is None else f" coarser dtype: swarepro calibrate --dtype {wanted} ..."
    hint = f"calibrate in the{coarser or ' dtype of one of them'}"
    if floor.dtype in dtypes:
        hint = f"run both with --dtype {floor.dtype}, or {hint}"
    raise IncomparableError(
        f"{path} is a floor of {floor.dtype}; the runs have weights in {dtypes[0]} and {dtypes[1]}",
        hint=hint,
    )
