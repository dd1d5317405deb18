"""`swarepro intervene`."""

from pathlib import Path

import pytest

from .conftest import Invoke


def test_the_cause_stabilises_and_the_guesses_are_rejected(invoke: Invoke) -> None:
    args = ("intervene", "anchor-a", "--unpatched", "-n", 3)
    done = invoke(*args)
    assert done.code == 1
    text = " ".join(done.out.split())
    assert text.startswith(
        "The values of step 1 vary. Stabilised by: program-order, alloc-swa, single-shot;"
        " rejected: sync-before-attention, alternate-route, fp32; not applicable: zero-scratch,"
        " poison-scratch."
    )
    document = invoke(*args, "--json").document
    assert document["control_varies"] is True
    factors = {each["factor"]: each for each in document["factors"]}
    assert factors["alloc-swa"]["verdict"] == "STABILISES"
    assert factors["alloc-swa"]["scope"] == "start"
    assert len(factors["alloc-swa"]["trials"]) == 6
    assert factors["alloc-swa"]["treatment"]["verdict"] == "DETERMINISTIC"


def test_a_healthy_case_has_nothing_to_stabilise(invoke: Invoke) -> None:
    done = invoke("intervene", "anchor-a", "--factor", "alloc-swa", "-n", 2)
    assert done.code == 0
    assert done.out.startswith("The values of step 1 do not vary: there is nothing to stabilise.")


def test_refusals(invoke: Invoke) -> None:
    done = invoke("intervene", "anchor-a", "--factor", "alloc-sva")
    assert done.code == 2
    assert "did you mean 'alloc-swa'?" in done.err
    assert invoke("intervene", "anchor-a", "--step", 7).code == 2
    assert invoke("intervene", "anchor-a", "--trials", 1).code == 2


def test_factors_that_do_not_apply_judge_nothing(invoke: Invoke) -> None:
    done = invoke("intervene", "anchor-a", "--unpatched", "--factor", "zero-scratch", "-n", 2)
    assert done.code == 2
    assert done.out.startswith("Nothing is said of step 1: no factor that was named")
    assert "NOT_APPLICABLE" in done.out


def test_what_varies_before_the_step_makes_it_invalid(invoke: Invoke) -> None:
    args = ("intervene", "anchor-a", "--unpatched", "--decode", 1, "--step", 2, "-n", 2)
    done = invoke(*args)
    assert done.code == 2
    text = " ".join(done.out.split())
    assert text.startswith("INVALID: step 1, session 0, logits varies between runs from scratch")
    assert "swarepro intervene anchor-a --step 1" in done.out
    document = invoke(*args, "--json").document
    assert (document["valid"], document["factors"]) == (False, [])
    assert document["varying_outputs"] == [{"step": 1, "session": 0, "name": "logits"}]


def test_a_changed_result_is_a_finding(invoke: Invoke) -> None:
    done = invoke("intervene", "one-row", "--unpatched", "--factor", "alloc-swa", "-n", 2)
    assert done.code == 1
    text = " ".join(done.out.split())
    assert "do not vary: there is nothing to stabilise. Result changed by: alloc-swa." in text


def test_what_is_refused_and_what_does_not_apply_is_in_the_headline(invoke: Invoke) -> None:
    args = ("intervene", "reset-zeroes-free-list", "--fault", "reset-zeroes-free-list", "-n", 2)
    done = invoke(*args, "--factor", "alloc-swa", "--factor", "zero-scratch")
    assert done.code == 2
    text = " ".join(done.out.split())
    assert text.startswith("Nothing is said of step 3")
    assert "Refused: alloc-swa; not applicable: zero-scratch." in text


def test_a_graft_and_its_long_name(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert invoke("run", "anchor-a", "--out", tmp_path, "--run-id", "good").code == 0
    name = f"graft:L0_attention_output={tmp_path / 'good'}"
    args = ("intervene", "anchor-a", "--unpatched", "--factor", name, "-n", 2)
    done = invoke(*args, "--factor", "sync-before-attention")
    assert done.code == 1
    table = done.out.split("\n\n")[1].splitlines()
    assert table[2].startswith("graft:L0_attention_ou...  REJECTED")
    assert any(line.startswith("sync-before-attention     REJECTED") for line in table)
    assert max(map(len, done.out.splitlines())) <= 100
    assert invoke(*args, "--json").document["factors"][0]["factor"] == name
    refused = invoke("intervene", "anchor-a", "--factor", f"graft:token={tmp_path / 'good'}")
    assert refused.code == 2
    assert "token cannot be grafted" in refused.err
