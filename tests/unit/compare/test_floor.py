import json
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from swarepro.bundle.environment import read_environment
from swarepro.bundle.schema import Manifest
from swarepro.case import CaseSpec
from swarepro.compare.floor import (
    FLOOR_VERSION,
    Floor,
    FloorEntry,
    FloorVariant,
    check_floor,
    read_floor,
    write_floor,
)
from swarepro.compare.limits import limits_of
from swarepro.errors import BundleError, IncomparableError
from tests.unit.bundle.factory import Run, spans

ENTRY = FloorEntry(
    point="L{layer}_o_proj", layer=0, order=1e-3, order_l2=1e-4, precision=1e-2, precision_l2=5e-3
)


def floor(*entries: FloorEntry) -> Floor:
    return Floor(
        floor_version=FLOOR_VERSION,
        model="synthetic:hand-made",
        dtype="float32",
        device="cpu",
        case="made",
        positions=100,
        variants=(FloorVariant(name="x", kind="order", boundaries=1, tokens_differ=False),),
        entries=entries,
        environment=read_environment(),
    )


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write_floor(tmp_path / "f", floor(ENTRY))
    found = read_floor(tmp_path / "f")
    assert msgspec.structs.replace(found, seal="") == floor(ENTRY)
    assert found.seal


def test_a_floor_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("mine")
    with pytest.raises(BundleError, match="exists already"):
        write_floor(tmp_path / "f", floor(ENTRY))
    assert (tmp_path / "f").read_text() == "mine"


class Full(BytesIO):
    """A file on a disk that is full."""

    def write(self, data: object) -> int:
        raise OSError(28, "No space left on device")


def test_nothing_is_left_of_a_floor_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(path: Path, mode: str) -> Full:
        path.touch(exist_ok=False)
        return Full()

    made = floor(ENTRY)
    with monkeypatch.context() as patch, pytest.raises(BundleError, match="No space left"):
        patch.setattr(Path, "open", opened)
        write_floor(tmp_path / "f", made)
    assert not (tmp_path / "f").exists()
    write_floor(tmp_path / "f", made)


def test_a_floor_is_of_the_coarser_dtype(tmp_path: Path) -> None:
    """What float32 rounds says nothing about bfloat16, whatever a reference computes in."""
    made = Run(items=[]).open(tmp_path / "b").manifest

    def ran(dtype: str, case: dict[str, object]) -> Manifest:
        backend = msgspec.structs.replace(made.backend, dtype=dtype)
        return msgspec.structs.replace(made, backend=backend, case=case)

    single, half = ran("fp32", {"dtype": "fp32"}), ran("bf16", {"dtype": "bf16"})
    imported, reference = ran("bf16", {}), ran("fp64", {"dtype": "bf16"})
    fine, coarse = (msgspec.structs.replace(floor(), dtype=name) for name in ("fp32", "bf16"))
    for sides in (
        (single, half),
        (half, single),
        (single, imported),
        (single, reference),
        (half, reference),
        (reference, reference),
    ):
        check_floor(Path("f"), coarse, *sides)
        with pytest.raises(IncomparableError, match="a floor of fp32") as raised:
            check_floor(Path("f"), fine, *sides)
        assert "--dtype bf16" in (raised.value.hint or "")
    check_floor(Path("f"), fine, single, ran("fp64", {"dtype": "fp32"}))
    with pytest.raises(IncomparableError, match="a floor of bf16"):
        check_floor(Path("f"), coarse, single, single)


def test_a_reference_that_states_no_dtype_has_weights_in_the_default_one(tmp_path: Path) -> None:
    """`run --engine dense` without --dtype computes in float32 from weights in bfloat16."""
    made = Run(items=[]).open(tmp_path / "b").manifest

    def ran(engine: str, dtype: str, case: dict[str, object]) -> Manifest:
        backend = msgspec.structs.replace(made.backend, dtype=dtype, engine=engine)
        return msgspec.structs.replace(made, backend=backend, case=case)

    assert CaseSpec(name="x", model="y", sessions=()).dtype == "bf16"
    single, half = ran("paged", "fp32", {"dtype": "fp32"}), ran("paged", "bf16", {})
    fine, coarse = (msgspec.structs.replace(floor(), dtype=name) for name in ("fp32", "bf16"))
    for dense in (ran("dense", "fp32", {}), ran("dense-fp64", "fp64", {})):
        check_floor(Path("f"), coarse, half, dense)
        with pytest.raises(IncomparableError, match="weights in fp32 and bf16") as raised:
            check_floor(Path("f"), fine, single, dense)
        assert "run both with --dtype fp32, or" in (raised.value.hint or "")
    imported = ran("dense", "fp32", {"imported": {}})
    check_floor(Path("f"), fine, single, imported)


@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        ((8, 12), (12,), None),
        ((13,), (12,), "the baseline has one of 13"),
        ((12,), (12, 13), "the target has one of 13"),
    ],
)
def test_a_floor_says_nothing_of_longer_sessions(
    tmp_path: Path, left: tuple[int, ...], right: tuple[int, ...], said: str | None
) -> None:
    sides = [
        Run(items=[], steps=spans((0, ends[0]), *pairwise(ends))).open(tmp_path / name).manifest
        for name, ends in (("b", left), ("t", right))
    ]
    measured = msgspec.structs.replace(floor(), positions=12)
    if said is None:
        check_floor(Path("f"), measured, *sides)
        return
    with pytest.raises(IncomparableError, match=f"up to 12 rows; {said}") as raised:
        check_floor(Path("f"), measured, *sides)
    assert "at least as long" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"colour": "red"}, "is no floor"),
        ({"entries": "none"}, "is no floor"),
        ({"entries": [{"point": "L{layer}_o_porj"}]}, "is no floor"),
    ],
)
def test_what_is_no_floor_is_refused(tmp_path: Path, change: dict[str, object], said: str) -> None:
    data = json.loads(msgspec.json.encode(floor(ENTRY)))
    (tmp_path / "f").write_text(json.dumps(data | change))
    with pytest.raises(BundleError, match=said):
        read_floor(tmp_path / "f")


@pytest.mark.parametrize("version", [FLOOR_VERSION - 1, FLOOR_VERSION + 1])
def test_a_floor_of_another_version_is_refused_with_what_makes_a_new_one(
    tmp_path: Path, version: int
) -> None:
    """Version 1 has the numbers of another unit in the same fields."""
    made = msgspec.structs.replace(floor(ENTRY), floor_version=version)
    write_floor(tmp_path / "f", made)
    with pytest.raises(BundleError, match=f"floor_version {version}; .* reads 2\n") as raised:
        read_floor(tmp_path / "f")
    assert "swarepro calibrate" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("old", "new"),
    [("0.01", "0.9"), ('"fp32"', '"bf16"'), ('"order"', '"precision"'), ("100", "9000")],
)
def test_a_floor_that_was_touched(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "f"
    write_floor(path, msgspec.structs.replace(floor(ENTRY), dtype="fp32"))
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(BundleError, match="changed after it was measured"):
        read_floor(path)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ((ENTRY, ENTRY), "there twice"),
        ((msgspec.structs.replace(ENTRY, point="L{layer}_o_porj"),), "no such capture point"),
        ((msgspec.structs.replace(ENTRY, order=-1.0),), "order is -1.0"),
    ],
)
def test_entries_that_cannot_be(tmp_path: Path, entries: tuple[FloorEntry, ...], said: str) -> None:
    write_floor(tmp_path / "f", floor(*entries))
    with pytest.raises(BundleError, match=said):
        read_floor(tmp_path / "f")


def test_a_spread_that_is_not_finite(tmp_path: Path) -> None:
    text = msgspec.json.encode(floor(ENTRY)).decode()
    assert '"precision":0.01' in text
    (tmp_path / "f").write_text(text.replace('"precision":0.01', '"precision":1e999'))
    with pytest.raises(BundleError, match="is no floor"):
        read_floor(tmp_path / "f")


def test_a_floor_that_is_too_large(tmp_path: Path) -> None:
    write_floor(tmp_path / "f", floor(ENTRY))
    with (tmp_path / "f").open("r+b") as file:
        file.truncate((1 << 26) + 1)  # sparse
    with pytest.raises(BundleError, match="too large for a floor"):
        read_floor(tmp_path / "f")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_bytes_that_are_no_json(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(BundleError, match="is no floor"):
        read_floor(tmp_path / "f")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="cannot read"):
        read_floor(tmp_path / "f")


BF16 = ("BF16", "BF16")
F32 = ("F32", "F32")


@pytest.mark.parametrize(
    ("kind", "dtypes", "is_source", "worst", "relative_l2"),
    [
        ("order", BF16, True, 2**-7, 4e-4),  # eps; four times the order's
        ("order", BF16, False, 0.02, 0.01),  # twice the precision's
        ("order", F32, True, 4e-3, 4e-4),  # four times the order's
        ("order", F32, False, 0.02, 0.01),
        ("precision", F32, True, 0.04, 0.02),  # four times the larger
        ("precision", ("F32", "BF16"), True, 0.04, 0.02),
    ],
)
def test_the_limits(
    kind: str, dtypes: tuple[str, str], is_source: bool, worst: float, relative_l2: float
) -> None:
    found = limits_of(ENTRY, kind, dtypes=dtypes, is_source=is_source, margin=4.0)
    assert found.worst == pytest.approx(worst)
    assert found.relative_l2 == pytest.approx(relative_l2)


@pytest.mark.parametrize("dtypes", [("F32", "BF16"), ("BF16", "F32")])
def test_the_coarser_dtype_rounds(dtypes: tuple[str, str]) -> None:
    none = msgspec.structs.replace(ENTRY, order=0.0, order_l2=0.0, precision=0.0, precision_l2=0.0)
    for kind in ("order", "precision"):
        found = limits_of(none, kind, dtypes=dtypes, is_source=False, margin=4.0)
        assert (found.worst, found.relative_l2) == (2**-7, 2**-7)


def test_the_order_counts_where_it_is_the_larger() -> None:
    """Precision takes in order; behind a source four times the order may be more than the rest."""
    noisy = msgspec.structs.replace(ENTRY, order=0.1, order_l2=0.05)
    for kind in ("order", "precision"):
        found = limits_of(noisy, kind, dtypes=F32, is_source=False, margin=4.0)
        assert (found.worst, found.relative_l2) == pytest.approx((0.4, 0.2))


@pytest.mark.parametrize(("dtypes", "eps"), [(BF16, 2**-7), (F32, 2**-23)])
def test_one_operation_rounds_where_no_variant_showed_it(
    dtypes: tuple[str, str], eps: float
) -> None:
    none = msgspec.structs.replace(ENTRY, order=0.0, order_l2=0.0)
    found = limits_of(none, "order", dtypes=dtypes, is_source=True, margin=4.0)
    assert (found.worst, found.relative_l2) == (eps, eps / 32)
