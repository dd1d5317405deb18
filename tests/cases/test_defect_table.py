"""The founding defect's table: five prompts, six repeats, both arms, on three stages."""

from functools import cache

import msgspec
import numpy as np
import pytest

from swarepro import api
from swarepro.bundle.read import open_bundle
from swarepro.compare.types import Determinism
from swarepro.options import CaptureOptions, RunOptions

REPEATS = 6
UNPATCHED = ("skip-swa-allocation",)

# case, whether the unpatched output of the last chunk varies, whether it is right
TABLE = [
    ("anchor-a", True, False),
    ("anchor-b", True, False),
    ("one-row", False, False),
    ("control", False, True),
    ("probe-c2", True, False),
]


@cache
def repeats(name: str, faults: tuple[str, ...]) -> Determinism:
    options = RunOptions(faults=faults)
    return api.repeat_case(api.find_case(name), repeats=REPEATS, options=options).determinism


def outputs(result: Determinism) -> dict[int, tuple[int, str]]:
    """Distinct digests and the modal one of every step's logits."""
    return {b.step: (b.distinct, b.modal) for b in result.points if b.name == "logits"}


@pytest.mark.parametrize(("name", "varies", "right"), TABLE)
def test_the_last_chunk(name, varies, right):
    unpatched, patched = outputs(repeats(name, UNPATCHED)), outputs(repeats(name, ()))
    last = max(patched)
    assert (unpatched[last][0] > 1) == varies
    assert patched[last][0] == 1
    if not varies:
        assert (unpatched[last][1] == patched[last][1]) == right


@pytest.mark.parametrize("name", [row[0] for row in TABLE])
def test_chunk_0_is_the_same_in_all_repeats_and_both_arms(name):
    unpatched, patched = outputs(repeats(name, UNPATCHED)), outputs(repeats(name, ()))
    assert unpatched[0] == patched[0]
    assert unpatched[0][0] == 1


@pytest.mark.parametrize(("name", "varies", "right"), TABLE)
def test_state_varies_first_and_values_only_where_a_later_chunk_reads_it(name, varies, right):
    result = repeats(name, UNPATCHED)
    assert (result.earliest_varying.step, result.earliest_varying.name) == (
        0,
        "L0_kv_slice_post_write",
    )
    if varies:
        first = result.first_value_varying
        assert (first.step, first.name) == (1, "L0_attention_output")
    else:
        assert result.first_value_varying is None
        assert {b.kind for b in result.points if b.distinct > 1} == {"state"}
    assert repeats(name, ()).earliest_varying is None


@pytest.mark.parametrize("name", ["anchor-a", "anchor-b", "probe-c2"])
def test_what_steers_layer_0_of_chunk_1_does_not_vary(name):
    """Upstream of the store nothing varies, and everything that consumes it does."""
    distinct = {(b.step, b.name): b.distinct for b in repeats(name, UNPATCHED).points}
    steady = ("qkv_projected", "q_normed", "k_normed", "v_normed", "rotary_applied")
    assert {distinct[1, f"L0_{point}"] for point in steady} == {1}
    assert {distinct[1, point] for point in ("positions", "full_slots", "swa_slots", "route")} == {
        1
    }
    for point in ("L0_attention_output", "L0_o_proj", "after_layer_0", "after_layer_11"):
        assert distinct[1, point] > 1


def test_one_row_is_stable_and_far_off(tmp_path):
    """Determinism is not correctness: the wrong logits are the same in every repeat."""
    case = api.find_case("one-row")
    logits = []
    for faults in ((), UNPATCHED):
        options = RunOptions(faults=faults, capture=CaptureOptions(points=("logits",)))
        bundle = open_bundle(api.run_case(case, out=tmp_path, options=options).bundle)
        record = next(r for r in bundle.records if r.step == 1)
        bits = bundle.tensor(record).astype(np.uint32) << 16
        logits.append(bits.view(np.float32))
    right, wrong = logits
    assert np.linalg.norm(wrong - right) / np.linalg.norm(right) > 0.1


def test_a_decode_after_the_defect_is_wrong_even_for_the_control(tmp_path):
    """A decode step reads slot 0 as its whole prefix: the control's next token is wrong, stably."""
    case = api.find_case("control")
    session = msgspec.structs.replace(case.sessions[0], decode=1)
    case = msgspec.structs.replace(case, sessions=(session,))
    patched = outputs(api.repeat_case(case, repeats=2).determinism)
    options = RunOptions(faults=UNPATCHED)
    unpatched = outputs(api.repeat_case(case, repeats=2, options=options).determinism)
    assert unpatched[0] == patched[0]
    assert unpatched[1][0] == 1
    assert unpatched[1][1] != patched[1][1]
