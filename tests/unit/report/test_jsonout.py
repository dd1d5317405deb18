import json
import math
from pathlib import Path
from typing import Any

from swarepro.compare.types import OneSided, Tolerance
from swarepro.report.jsonout import (
    determinism_document,
    diff_document,
    finite,
    inspect_document,
    run_document,
)
from tests.unit.report import made

MILESTONE = (
    "step session name layer kind stage verdict bound origin reason reread_at rows positions heads"
    " num_rows num_heads num_mismatched num_elements first_mismatch max_ulp max_abs relative_l2"
    " cosine nonfinite_baseline nonfinite_target"
)
DIFF = (
    "verdict baseline target differences align tolerance compared diverging tensors_opened"
    " verified tokens_differ last_step"
    " first first_state first_value last_identical boundaries only_baseline only_target skipped"
    " patterns rereads unsteady"
)
DETERMINISM = (
    "verdict repeats points varying earliest_varying first_value_varying outputs_vary deviating"
    " modal_repeat rate_upper_bound tokens distinct ownership kept"
)
RUN = (
    "bundle run_id tokens texts steps final_actions points size_bytes fill shadow first_violation"
    " ownership unmatched"
)
STAGE = "stage group capacity free live evictable reserved positions owners violations"
VIOLATION = "kind step positions slots message layer group owner user order"


def keys(document: dict[str, Any]) -> str:
    """Return the keys as the words above, whatever their order."""
    return " ".join(sorted(document))


def words(text: str) -> str:
    return " ".join(sorted(text.split()))


def parsed(document: dict[str, Any]) -> Any:
    return json.loads(json.dumps(finite(document), allow_nan=False))


def test_diff_keys() -> None:
    found = made.divergence(
        only_target=(
            OneSided(step=2, name="logits"),
            OneSided(step=2, session=1, name="token", positions=(4, 6)),
        ),
        tolerance=Tolerance(atol=1.0, rtol=0.5),
        differences=("dtype (bf16 against fp32)",),
    )
    document = parsed(diff_document(found))
    assert keys(document) == words(DIFF)
    assert document["verdict"] == "DIVERGED"
    assert document["tolerance"] == {"atol": 1.0, "rtol": 0.5}
    assert document["diverging"] == 2
    assert document["only_baseline"] == []
    assert document["only_target"] == [
        {"step": 2, "session": 0, "name": "logits", "positions": None},
        {"step": 2, "session": 1, "name": "token", "positions": [4, 6]},
    ]
    assert document["differences"] == ["dtype (bf16 against fp32)"]
    assert keys(document["first"]) == keys(document["first_value"]) == words(MILESTONE)
    assert document["first"] == document["first_state"]
    assert document["first"]["kind"] == "state"
    assert document["first"]["bound"] == "exact"
    assert document["first"]["rows"] is None
    assert document["first_value"]["rows"] == [0, 1, 2]
    assert document["first_value"]["positions"] == [64, 65, 66]
    assert document["last_identical"]["name"] == "L0_kv_slice_pre_write"
    assert [row["origin"] for row in document["boundaries"]] == ["source", "inherited"]


def test_identical_has_nulls() -> None:
    document = parsed(diff_document(made.identical()))
    assert document["first"] is document["first_state"] is document["first_value"] is None
    assert document["tolerance"] is document["last_identical"] is None
    ulp = parsed(diff_document(made.identical(tolerance=Tolerance(max_ulp=3))))
    assert ulp["tolerance"] == {"max_ulp": 3}


def test_an_origin_that_is_not_known() -> None:
    first = made.boundary("logits", origin="unknown")
    document = parsed(
        diff_document(
            made.divergence(
                first=first, first_value=first, boundaries=(first,), exact=False, exact_value=False
            )
        )
    )
    assert document["first"]["origin"] == document["boundaries"][0]["origin"] == "unknown"
    assert document["first"]["bound"] == document["first_value"]["bound"] == "here-or-before"


def test_no_nan_and_no_infinity() -> None:
    value = made.boundary(numbers=made.numbers(max_abs=math.inf, relative_l2=math.nan))
    document = parsed(diff_document(made.divergence(first_value=value)))
    assert document["first_value"]["max_abs"] is None
    assert document["first_value"]["relative_l2"] is None
    assert finite({"a": (math.nan, [math.inf, 1.0])}) == {"a": [None, [None, 1.0]]}


def test_determinism_keys() -> None:
    document = parsed(determinism_document(made.determinism(), kept=[Path("a"), Path("b")]))
    assert keys(document) == words(DETERMINISM)
    assert document["verdict"] == "NONDETERMINISTIC"
    assert (document["repeats"], document["points"], document["varying"]) == (6, 3, 2)
    assert document["earliest_varying"] == {
        "step": 0,
        "session": 0,
        "name": "L0_kv_slice_post_write",
        "layer": 0,
        "kind": "state",
    }
    assert document["first_value_varying"]["kind"] == "value"
    assert document["distinct"][1] == {
        "step": 0,
        "stage": 0,
        "session": 0,
        "name": "L0_kv_slice_post_write",
        "kind": "state",
        "distinct": 3,
        "classes": [3, 2, 1],
    }
    assert len(document["tokens"]) == 6
    assert document["kept"] == ["a", "b"]
    assert document["rate_upper_bound"] is None


def test_deterministic_has_nulls_and_a_bound() -> None:
    document = parsed(determinism_document(made.deterministic(), kept=[]))
    assert document["earliest_varying"] is document["first_value_varying"] is None
    assert 0.39 < document["rate_upper_bound"] < 0.40


def test_run_keys() -> None:
    found = made.manifest(ownership=(made.ownership(made.VIOLATION),))
    document = parsed(run_document(found, bundle=Path("runs/r1"), size_bytes=5))
    assert keys(document) == words(RUN)
    assert document["tokens"] == [[227, 3]]
    assert document["steps"][0] == {
        "index": 0,
        "phase": "prefill",
        "spans": [{"session": 0, "start": 0, "end": 64, "phase": None}],
        "reset": False,
        "actions": [],
    }
    (stage,) = document["ownership"]
    assert keys(stage) == words(STAGE)
    assert stage["owners"][0]["slots"][:2] == [1, 2]
    assert keys(stage["violations"][0]) == words(VIOLATION)
    assert stage["violations"][0]["kind"] == "sentinel-store"
    assert document["first_violation"] == {"stage": 0, **stage["violations"][0]}
    assert (document["fill"], document["shadow"], document["final_actions"]) == ("zero", True, [])


def test_a_run_of_batches() -> None:
    document = parsed(run_document(made.batches(), bundle=Path("r"), size_bytes=5))
    assert document["first_violation"] is None
    assert [span["phase"] for span in document["steps"][1]["spans"]] == ["prefill", "decode"]
    assert document["steps"][2]["actions"][2] == {
        "kind": "reuse",
        "session": 2,
        "of": 0,
        "rows": 32,
    }
    assert document["final_actions"] == [{"kind": "finish", "session": 2, "of": None, "rows": None}]


def test_the_first_violation_is_first_by_its_order() -> None:
    found = made.manifest(ownership=made.two_groups(broken=True))
    first = parsed(run_document(found, bundle=Path("r"), size_bytes=5))["first_violation"]
    assert (first["kind"], first["stage"], first["order"]) == ("duplicate-slot-store", 0, 0)
    assert (first["layer"], first["group"]) == (5, "full")
    assert first["owner"] == {"session": 0, "position": 2}
    assert first["user"] == {"session": 1, "position": 7}


def test_sessions_are_in_boundaries_and_classes() -> None:
    bad = made.boundary(session=1)
    document = parsed(diff_document(made.divergence(boundaries=(made.STORE, bad), first_value=bad)))
    assert [row["session"] for row in document["boundaries"]] == [0, 1]
    assert document["first_value"]["session"] == 1
    varying = made.classes("logits", (5, 1), session=1)
    repeats = parsed(determinism_document(made.determinism(points=(varying,)), kept=[]))
    assert repeats["distinct"][0]["session"] == 1


def test_inspect_keys() -> None:
    document = parsed(
        inspect_document(made.manifest(), [made.record(0)], bundle=Path("r"), verified=1)
    )
    assert set(document) == {"bundle", "verified", "manifest", "records"}
    assert document["records"][0]["kind"] == "value"
    assert document["manifest"]["run_id"] == "r1"
