"""The defect's part of the GPU check: its judge on hand-made results, and the part on the CPU."""

from collections import Counter
from dataclasses import replace

import msgspec
import pytest

from bench.gpu import defect
from bench.gpu.models import LoadedModel
from bench.gpu.report import Clock, Row
from swarepro import api
from swarepro.compare.types import BoundaryClasses, Determinism, OneSided
from swarepro.errors import CheckpointError
from swarepro.points import PointKind

POST_WRITE, ATTENTION = "L0_kv_slice_post_write", "L0_attention_output"


def silent(text: str) -> None:
    pass


def plenty() -> Clock:
    return Clock(3600)


def boundary(step: int, name: str, digests: str) -> BoundaryClasses:
    """One character is one repeat's digest."""
    counts = Counter(digests)
    modal = counts.most_common(1)[0][0]
    return BoundaryClasses(
        step=step,
        stage=0,
        name=name,
        layer=0 if name.startswith("L") else None,
        kind=PointKind.STATE if "slice" in name else PointKind.VALUE,
        classes=tuple(sorted(counts.values(), reverse=True)),
        modal=modal,
        deviating=tuple(index for index, digest in enumerate(digests) if digest != modal),
    )


def found(*points: BoundaryClasses, only_some: tuple[OneSided, ...] = ()) -> Determinism:
    varying = [point for point in points if point.distinct > 1]
    values = [point for point in varying if point.kind is PointKind.VALUE]
    return Determinism(
        repeats=6,
        points=points,
        earliest_varying=varying[0] if varying else None,
        first_value_varying=values[0] if values else None,
        outputs_vary=tuple(point.step for point in values if point.name == "logits"),
        tokens=((),) * 6,
        modal_repeat=0,
        deviating=(),
        rate_upper_bound=None,
        only_some=only_some,
    )


def arm(
    post: str = "aaaaaa",
    logits_0: str = "aaaaaa",
    attention: str = "bbbbbb",
    logits_1: str = "cccccc",
    only_some: tuple[OneSided, ...] = (),
) -> Determinism:
    return found(
        boundary(0, POST_WRITE, post),
        boundary(0, ATTENTION, "aaaaaa"),
        boundary(0, "logits", logits_0),
        boundary(1, ATTENTION, attention),
        boundary(1, "logits", logits_1),
        only_some=only_some,
    )


PATCHED = arm()
VARIES = arm(post="aabbcd", attention="uuvvwx", logits_1="uuvvwx")
ANCHOR, ONE_ROW = api.find_case("anchor-a"), api.find_case("one-row")


def test_an_anchor_that_varies_holds_and_is_as_the_table_says() -> None:
    row = defect.row(ANCHOR, "tiny", VARIES, PATCHED)
    assert (row.ok, row.judged, row.verdict) == (True, True, "yes")
    assert "unpatched 4 of 6" in row.seen
    assert f"earliest step 0 {POST_WRITE}" in row.seen
    assert f"first value step 1 {ATTENTION}" in row.seen
    assert "patched 1 of 6; as the table says" in row.seen
    assert row.figures["seen_to_vary"] is True
    assert row.figures["output_wrong"] is True
    assert row.figures["unpatched"]["output_classes"] == [2, 2, 1, 1]
    assert row.figures["patched"]["verdict"] == "DETERMINISTIC"


def test_an_anchor_that_does_not_vary_is_chance_and_no_failure() -> None:
    stable = arm(attention="uuuuuu", logits_1="uuuuuu")
    row = defect.row(ANCHOR, "tiny", stable, PATCHED)
    assert row.ok
    assert "not as the table says" in row.seen
    assert row.figures["seen_to_vary"] is False
    assert len(row.figures["off_the_table"]) == 3  # earliest, first value, output


@pytest.mark.parametrize(
    ("unpatched", "patched", "complaint"),
    [
        (VARIES, arm(post="aaaaab"), "patched: varies, earliest at step 0 L0_kv_slice_post_write"),
        (VARIES, arm(logits_1="cccccd"), "patched: varies, earliest at step 1 logits"),
        (arm(logits_0="aaaaab"), PATCHED, "unpatched: chunk 0 varies, first at logits"),
        (arm(logits_0="bbbbbb"), PATCHED, "chunk 0: the arms differ, first at logits"),
        (VARIES, arm(only_some=(OneSided(step=1, name="x"),)), "1 boundaries are missing"),
        (VARIES, found(*PATCHED.points[:4]), "patched: no output of step 1 was captured"),
        (VARIES, found(*PATCHED.points[3:]), "patched: no output of step 0 was captured"),
        (VARIES, found(*PATCHED.points[1:3], *PATCHED.points[4:]), None),
        (VARIES, found(*PATCHED.points[2:]), "the two arms captured different boundaries"),
        (found(), found(), "unpatched: no output of step 0 was captured"),
    ],
)
def test_control_what_no_hardware_excuses(
    unpatched: Determinism, patched: Determinism, complaint: str | None
) -> None:
    row = defect.row(ANCHOR, "tiny", unpatched, patched)
    assert row.ok is (complaint is None)
    assert complaint is None or complaint in row.seen


def test_tokens_that_vary_are_a_finding_too() -> None:
    tokens = replace(PATCHED, tokens=((1,), (2,), (1,), (1,), (1,), (1,)))
    assert "patched: varies, earliest at none" in defect.row(ANCHOR, "t", VARIES, tokens).seen


def test_one_row_is_wrong_and_must_not_vary() -> None:
    stable = arm(post="aabbcd", attention="uuuuuu", logits_1="uuuuuu")
    row = defect.row(ONE_ROW, "tiny", stable, PATCHED)
    assert row.ok
    assert "; as the table says" in row.seen
    assert "does not vary" in row.aim
    varies = defect.row(ONE_ROW, "tiny", VARIES, PATCHED)
    assert not varies.ok
    assert "the output varies (4 distinct), which it cannot" in varies.seen
    right = arm(post="aabbcd")  # chance cannot make it right
    assert "output: right" in defect.row(ONE_ROW, "tiny", right, PATCHED).seen


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """The whole part on the CPU, the eager route's seeded orders in place of the hardware's."""
    big = LoadedModel("synthetic:gemma3-tiny", "cpu")
    return list(defect.run("cpu", big, clock=plenty(), say=silent))


def test_the_part_finds_the_table_on_the_cpu(rows: list[Row]) -> None:
    assert [row.what for row in rows] == [
        f"{case} on {model}" for model in ("gemma4-tiny", "gemma3-tiny") for case in defect.CASES
    ]
    assert [row.seen for row in rows if not row.ok] == []
    assert [row.seen for row in rows if row.figures["off_the_table"]] == []
    varying = {row.figures["case"] for row in rows if row.figures["seen_to_vary"]}
    assert varying == {"anchor-a", "anchor-b", "probe-c2"}


def test_the_loaded_model_says_what_the_api_says() -> None:
    case = msgspec.structs.replace(ANCHOR, stages=None)
    model = LoadedModel(case.model, "cpu")
    for faults in ((), ("skip-swa-allocation",)):
        options = api.RunOptions(device="cpu", faults=faults)
        expected = api.repeat_case(case, repeats=3, options=options).determinism
        assert model.repeat(case, faults=faults, repeats=3) == expected
    other = model.prepare(msgspec.structs.replace(api.find_case("one-row"), stages=None))
    assert other.model is model.prepare(case).model


def test_the_loaded_model_refuses_what_it_was_not_loaded_for() -> None:
    model = LoadedModel(ANCHOR.model, "cpu")
    model.prepare(ANCHOR)
    with pytest.raises(ValueError, match="other stages"):
        model.prepare(msgspec.structs.replace(ANCHOR, stages=None))
    with pytest.raises(ValueError, match="is of synthetic:gemma3-tiny"):
        model.prepare(msgspec.structs.replace(ANCHOR, model="synthetic:gemma3-tiny"))


def test_a_model_that_cannot_be_loaded_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = LoadedModel("synthetic:no-such", "cpu")
    rows = list(defect.run("cpu", model, clock=plenty(), say=silent, repeats=2))
    assert [row.ok for row in rows] == [True] * 5 + [False] * 5
    assert all(row.seen.startswith("CheckpointError:") for row in rows[5:])
    monkeypatch.setattr("bench.gpu.models.prepare", None)  # a second try would call it
    with pytest.raises(CheckpointError):
        model.prepare(msgspec.structs.replace(ANCHOR, model=model.model))
