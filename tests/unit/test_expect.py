"""What a case states about itself: each field is read, checked, and survives the manifest."""

from typing import Any

import msgspec
import pytest

from swarepro import errors
from swarepro.case import CaseSpec, convert_case
from swarepro.errors import CaseError
from swarepro.expect import (
    BaselineSpec,
    CaseExpect,
    Expect,
    ExpectDiff,
    ExpectFill,
    ExpectFloor,
    PointRef,
    RowsRef,
    ToleranceSpec,
    ViolationRef,
)


def case(expect: dict[str, Any], *, fault: str | None = "f") -> CaseSpec:
    data: dict[str, Any] = {
        "name": "x",
        "model": "synthetic:gemma4-tiny",
        "sessions": [{"prompt": {"random": 3}}],
        "expect": expect,
    }
    return convert_case(data if fault is None else data | {"fault": fault}, source="x.toml")


def refuse(expect: dict[str, Any], *, fault: str | None = "f") -> CaseError:
    with pytest.raises(CaseError) as caught:
        case(expect, fault=fault)
    assert caught.value.message.startswith("x.toml: ")
    return caught.value


WHOLE = {
    "healthy": {
        "verdict": "NONDETERMINISTIC",
        "fill": {"verdict": "MASKED_LANE", "first": {"step": 2, "name": "L5_attention_output"}},
    },
    "faulty": {
        "verdict": "DETERMINISTIC",
        "earliest_varying": {"step": 0, "name": "swa_slots"},
        "first_value_varying": {"step": 1, "name": "L3_o_proj"},
        "outputs_vary": [1, 2],
        "violations": ["foreign-store", "sentinel-store"],
        "first_violation": {"kind": "sentinel-store", "step": 0, "layer": 3},
    },
    "diff": {
        "verdict": "DIVERGED",
        "first": {"step": 0, "name": "full_slots"},
        "first_state": {"step": 0, "name": "L0_kv_slice_post_write"},
        "first_value": {"step": 1, "name": "L3_k_normed"},
        "value_rows": {"first": 64, "count": 3},
        "value_heads": [0, 1],
        "first_nonfinite": {"step": 2, "name": "L1_o_proj"},
        "hides_effect": True,
        "within": {"atol": 1e-3, "rtol": 2},
        "baseline": {"swa_capacity": 96, "evict": False},
        "fill": "large",
    },
}


def test_every_field_is_read() -> None:
    assert case(WHOLE).expect == CaseExpect(
        healthy=Expect(
            verdict="NONDETERMINISTIC",
            fill=ExpectFill(
                verdict="MASKED_LANE", first=PointRef(step=2, name="L5_attention_output")
            ),
        ),
        faulty=Expect(
            verdict="DETERMINISTIC",
            earliest_varying=PointRef(step=0, name="swa_slots"),
            first_value_varying=PointRef(step=1, name="L3_o_proj"),
            outputs_vary=(1, 2),
            violations=("foreign-store", "sentinel-store"),
            first_violation=ViolationRef(kind="sentinel-store", step=0, layer=3),
        ),
        diff=ExpectDiff(
            verdict="DIVERGED",
            first=PointRef(step=0, name="full_slots"),
            first_state=PointRef(step=0, name="L0_kv_slice_post_write"),
            first_value=PointRef(step=1, name="L3_k_normed"),
            value_rows=RowsRef(first=64, count=3),
            value_heads=(0, 1),
            first_nonfinite=PointRef(step=2, name="L1_o_proj"),
            hides_effect=True,
            within=ToleranceSpec(atol=0.001, rtol=2.0),
            baseline=BaselineSpec(swa_capacity=96, evict=False),
            fill="large",
        ),
    )


FLOORS: list[dict[str, Any]] = [
    {"verdict": "NOISE", "gap_at_most": 0.125, "drift_at_most": 1e-4},
    {"verdict": "TIE", "gap_at_most": 0.0},
    {"verdict": "WRONG", "first": {"step": 1, "name": "L0_o_proj"}},
]


@pytest.mark.parametrize("floor", FLOORS)
def test_what_a_floor_must_say_is_read(floor: dict[str, Any]) -> None:
    spec = case({"faulty": {}, "diff": {"verdict": "DIVERGED", "floor": floor}})
    assert spec.expect.diff is not None
    wanted = floor | ({"first": PointRef(**floor["first"])} if "first" in floor else {})
    assert spec.expect.diff.floor == ExpectFloor(**wanted)
    assert convert_case(msgspec.to_builtins(spec), source="again") == spec


@pytest.mark.parametrize(
    ("floor", "more", "said"),
    [
        ({"verdict": "TIE", "drift_at_most": 1.0}, {}, "drift_at_most says nothing of that"),
        ({"verdict": "WRONG", "gap_at_most": 1.0}, {}, "gap_at_most says nothing of that"),
        (
            {"verdict": "NOISE", "first": {"step": 0, "name": "logits"}},
            {},
            "floor is NOISE, and first says nothing of that",
        ),
        ({"verdict": "NOISE"}, {"fill": "zero"}, "a fill or a seed of its own"),
        ({"verdict": "NOISE"}, {"seed": 3}, "a fill or a seed of its own"),
        ({"verdict": "NOISE"}, {"baseline": {"evict": False}}, "the diff has a baseline"),
        ({"verdict": "WRONG", "first": {"step": 0, "name": "L0_x"}}, {}, "floor.first: "),
    ],
)
def test_what_no_floor_can_say_is_refused(
    floor: dict[str, Any], more: dict[str, Any], said: str
) -> None:
    found = refuse({"faulty": {}, "diff": {"verdict": "DIVERGED", "floor": floor, **more}})
    assert said in found.message
    assert found.hint is not None


def test_what_is_left_out_is_not_looked_at() -> None:
    first = {"kind": "double-free", "step": 4}
    expect = case({"faulty": {"violations": ["double-free"], "first_violation": first}}).expect
    assert expect.healthy == Expect(verdict="DETERMINISTIC")
    assert expect.faulty is not None
    assert expect.faulty.first_violation == ViolationRef(kind="double-free", step=4, layer=None)
    assert (expect.faulty.fill, expect.faulty.error, expect.diff) == (None, None, None)


@pytest.mark.parametrize("expect", [WHOLE, {"faulty": {"error": "CapacityError"}}])
def test_expectations_survive_the_manifest(expect: dict[str, Any]) -> None:
    spec = case(expect)
    data = msgspec.to_builtins(spec)
    assert convert_case(data, source="again") == spec
    assert convert_case(msgspec.json.decode(msgspec.json.encode(spec)), source="again") == spec


@pytest.mark.parametrize(
    ("expect", "path"),
    [
        ({"faulty": {"fill": {"verdict": "SAME"}}}, "`$.expect.faulty.fill.verdict`"),
        ({"faulty": {"fill": {}}}, "missing required field `verdict`"),
        ({"faulty": {"first_violation": {"kind": "x"}}}, "missing required field `step`"),
        ({"faulty": {"first_violation": {"step": 0}}}, "missing required field `kind`"),
        (
            {"faulty": {"first_violation": {"kind": "x", "step": 0, "layer": -1}}},
            "`$.expect.faulty.first_violation.layer`",
        ),
        ({"faulty": {"outputs_vary": [-1]}}, "`$.expect.faulty.outputs_vary[0]`"),
        (
            {"faulty": {}, "diff": {"verdict": "DIVERGED", "baseline": {"swa_capacity": 0}}},
            "`$.expect.diff.baseline.swa_capacity`",
        ),
        ({"faulty": {}, "diff": {}}, "missing required field `verdict`"),
        (
            {"faulty": {}, "diff": {"verdict": "IDENTICAL", "within": {"atol": 1.0}}},
            "missing required field `rtol`",
        ),
        (
            {"faulty": {}, "diff": {"verdict": "WITHIN_TOLERANCE"}},
            "`$.expect.diff.verdict`",
        ),
    ],
)
def test_what_is_wrong_is_named(expect: dict[str, Any], path: str) -> None:
    assert path in refuse(expect).message


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        ("CapacityErorr", "did you mean 'CapacityError'?"),
        ("SlotRangeErrors", "did you mean 'SlotRangeError'?"),
        ("ValueError", None),
        ("ExitCode", None),  # it is in swarepro.errors, and no error
        ("", None),
    ],
)
@pytest.mark.parametrize("arm", ["healthy", "faulty"])
def test_an_error_that_does_not_exist_is_refused(arm: str, error: str, hint: str | None) -> None:
    caught = refuse({"faulty": {}, arm: {"error": error}})
    assert f"[expect.{arm}] names an unknown error {error!r}" in caught.message
    assert caught.hint is not None
    assert hint is None or caught.hint == hint


def test_every_error_of_the_family_may_be_expected() -> None:
    for name in ("SwareproError", "CapacityError", "ReuseError", "PositionGapError", "CaseError"):
        assert issubclass(getattr(errors, name), errors.SwareproError)
        assert case({"faulty": {"error": name}}).expect.faulty == Expect(error=name)


@pytest.mark.parametrize("arm", ["healthy", "faulty"])
def test_a_diff_needs_two_bundles(arm: str) -> None:
    diff = {"verdict": "DIVERGED"}
    caught = refuse({"faulty": {}, arm: {"error": "CapacityError"}, "diff": diff})
    assert f"the {arm} arm expects the error CapacityError" in caught.message


def test_a_baseline_of_its_own_stands_in_for_a_healthy_arm_that_is_refused() -> None:
    diff = {"verdict": "DIVERGED", "baseline": {"evict": False}}
    healthy = {"error": "ReuseError"}
    found = case({"healthy": healthy, "faulty": {}, "diff": diff}).expect.diff
    assert found is not None
    assert found.baseline == BaselineSpec(evict=False)
    caught = refuse({"healthy": healthy, "faulty": {"error": "ReuseError"}, "diff": diff})
    assert "the faulty arm expects the error ReuseError" in caught.message


def test_a_baseline_that_changes_nothing_is_refused() -> None:
    caught = refuse({"faulty": {}, "diff": {"verdict": "DIVERGED", "baseline": {}}})
    assert caught.message.endswith("[expect.diff] has a baseline that is as the case")


def test_a_faulty_arm_and_a_fault_come_together() -> None:
    for expect in ({"faulty": {}}, {"diff": {"verdict": "DIVERGED"}}):
        assert "need a fault; the case names none" in refuse(expect, fault=None).message
    assert "does not say what it must show" in refuse({}).message
    assert case({}, fault=None).expect == CaseExpect()


@pytest.mark.parametrize(
    "beside",
    [
        {"verdict": "DETERMINISTIC"},
        {"earliest_varying": {"step": 0, "name": "logits"}},
        {"first_value_varying": {"step": 0, "name": "logits"}},
        {"outputs_vary": [0]},
        {"fill": {"verdict": "INDEPENDENT"}},
    ],
    ids=lambda beside: next(iter(beside)),
)
@pytest.mark.parametrize("arm", ["healthy", "faulty"])
def test_what_an_error_keeps_from_being_looked_at_is_refused(
    arm: str, beside: dict[str, Any]
) -> None:
    caught = refuse({"faulty": {}, arm: {"error": "CapacityError", **beside}})
    (name,) = beside
    assert f"[expect.{arm}] expects the error CapacityError, and {name} beside it" in caught.message
    assert caught.hint == f"leave out {name}, or the error"
    seen = {"error": "CapacityError", "violations": ["exhaustion"]}
    assert case({"faulty": {}, arm: seen}) is not None


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("L0_kv_slice_post_writ", "did you mean 'L0_kv_slice_post_write'?"),
        ("L12_kv_slice_postwrite", "did you mean 'L12_kv_slice_post_write'?"),
        ("L{layer}_o_proj", "did you mean 'L0_o_proj'?"),
        ("L03_o_proj", "did you mean 'L3_o_proj'?"),
        ("logit", "did you mean 'logits'?"),
        ("zzz", "`swarepro points` lists them"),
    ],
)
@pytest.mark.parametrize(
    "field",
    [
        "faulty.earliest_varying",
        "faulty.first_value_varying",
        "faulty.fill.first",
        "diff.first",
        "diff.first_state",
        "diff.first_value",
        "diff.first_nonfinite",
    ],
)
def test_a_boundary_that_is_not_declared_is_refused(field: str, name: str, hint: str) -> None:
    table, _, key = field.partition(".")
    ref = {"step": 0, "name": name}
    found: dict[str, Any] = {key: ref}
    if key == "fill.first":
        found = {"fill": {"verdict": "UNWRITTEN_READ", "first": ref}}
    if table == "diff":
        found["verdict"] = "DIVERGED"
    caught = refuse({"faulty": {}, table: found})
    assert f"[expect.{table}] {key}: no such boundary: {name!r}" in caught.message
    assert caught.hint == hint


@pytest.mark.parametrize(
    ("key", "name", "kinds"),
    [
        ("first_state", "L0_o_proj", "a value boundary, never a state"),
        ("first_value", "swa_slots", "a metadata boundary, never a value"),
        ("first_nonfinite", "L0_kv_slice_pre_write", "a state boundary, never a value"),
    ],
)
def test_a_boundary_of_a_kind_that_is_never_found_there_is_refused(
    key: str, name: str, kinds: str
) -> None:
    found = {"verdict": "DIVERGED", key: {"step": 0, "name": name}}
    assert kinds in refuse({"faulty": {}, "diff": found}).message


@pytest.mark.parametrize(
    ("wanted", "name", "message", "hint"),
    [
        (
            {"value_rows": {"first": 0, "count": 1}},
            None,
            "has value_rows, and no first_value whose they are",
            "name the first_value, or leave out value_rows",
        ),
        (
            {"value_rows": {"first": 0, "count": 1}, "value_heads": [1]},
            None,
            "has value_rows and value_heads, and no first_value whose they are",
            "name the first_value, or leave out value_rows and value_heads",
        ),
        (
            {"value_heads": [0]},
            "L0_o_proj",
            "value_heads are [0], and 'L0_o_proj' has no heads",
            "leave out value_heads",
        ),
        (
            {"value_heads": [2, 0, 2]},
            "L0_q_normed",
            "value_heads are ascending, each once; found [2, 0, 2]",
            "write [0, 2]",
        ),
    ],
)
def test_rows_and_heads_that_nobody_looks_at_are_refused(
    wanted: dict[str, Any], name: str | None, message: str, hint: str
) -> None:
    first = {} if name is None else {"first_value": {"step": 0, "name": name}}
    caught = refuse({"faulty": {}, "diff": {"verdict": "DIVERGED", **first, **wanted}})
    assert message in caught.message
    assert caught.hint == hint


@pytest.mark.parametrize(
    ("rows", "path"),
    [
        ({"first": 0, "count": 0}, "`$.expect.diff.value_rows.count`"),
        ({"first": -1, "count": 1}, "`$.expect.diff.value_rows.first`"),
        ({"first": 0}, "missing required field `count`"),
        ({"first": 0, "count": 1, "last": 3}, "unknown field `last`"),
    ],
)
def test_rows_that_cannot_be_are_refused(rows: dict[str, int], path: str) -> None:
    first = {"step": 0, "name": "logits"}
    diff = {"verdict": "DIVERGED", "first_value": first, "value_rows": rows}
    caught = refuse({"faulty": {}, "diff": diff})
    assert path in caught.message
    assert "last" not in rows or caught.hint == "known here: first, count"


def test_independent_has_no_first() -> None:
    fill = {"verdict": "INDEPENDENT", "first": {"step": 0, "name": "logits"}}
    caught = refuse({"faulty": {"fill": fill}})
    assert "fill is INDEPENDENT, and 'logits' is to be the first that depends" in caught.message


@pytest.mark.parametrize(
    ("arm", "message", "hint"),
    [
        (
            {"violations": ["foreign-stores"]},
            "names an unknown violation 'foreign-stores'",
            "did you mean 'foreign-store'?",
        ),
        (
            {"first_violation": {"kind": "double-fre", "step": 0}},
            "names an unknown violation 'double-fre'",
            "did you mean 'double-free'?",
        ),
        (
            {"first_violation": {"kind": "double-free", "step": 0}},
            "first_violation is 'double-free', and violations are none",
            "add 'double-free' to violations",
        ),
        (
            {"violations": ["sentinel-store", "foreign-store"]},
            "violations are sorted, each once; found sentinel-store, foreign-store",
            "write foreign-store, sentinel-store",
        ),
    ],
)
def test_violations_that_nothing_can_meet_are_refused(
    arm: dict[str, Any], message: str, hint: str
) -> None:
    caught = refuse({"faulty": arm})
    assert message in caught.message
    assert caught.hint == hint
