"""`swarepro replay`."""

from pathlib import Path

import pytest

from .conftest import Invoke


def test_a_finding_names_the_store_and_proves_the_restore(invoke: Invoke) -> None:
    done = invoke("replay", "anchor-a", "--unpatched", "--step", 1, "-n", 3)
    assert done.code == 1
    assert done.out.startswith("NONDETERMINISTIC over 3 repeats: the earliest bad store is step 1,")
    text = " ".join(done.out.split())
    assert "all 27 digests of the state were the frozen ones" in text
    assert "The outputs of the steps before it are the same in 3 runs from scratch." in text


def test_patched_nothing_varies(invoke: Invoke) -> None:
    done = invoke("replay", "anchor-a", "--step", 1, "-n", 3, "--json")
    assert done.code == 0
    assert done.document["valid"] is True
    assert done.document["found"]["verdict"] == "DETERMINISTIC"
    assert done.document["schedules"] == ["seeded:0", "seeded:1", "seeded:2"]
    assert done.document["rows_restored"] == 2 * 3 * 12


def test_what_varies_before_the_step_makes_it_invalid(invoke: Invoke) -> None:
    args = ("replay", "anchor-a", "--unpatched", "--decode", 1, "--step", 2, "-n", 2)
    done = invoke(*args)
    assert done.code == 2
    assert done.out.startswith("INVALID: step 1, session 0, logits varies between runs")
    assert "swarepro replay anchor-a --step 1" in done.out
    assert invoke(*args, "--json").document["varying_outputs"] == [
        {"step": 1, "session": 0, "name": "logits"}
    ]


def test_a_saved_state_is_replayed_without_its_case(invoke: Invoke, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    done = invoke("replay", "anchor-a", "--unpatched", "--step", 1, "-n", 2, "--save", folder)
    assert done.code == 1
    assert f"swarepro replay --from {folder}" in " ".join(done.out.split())
    done = invoke("replay", "--from", folder, "--route", "eager-paged", "-n", 2, "--json")
    assert done.code == 1
    assert done.document["case"] == "anchor-a"
    assert done.document["saved"] == str(folder)
    again = invoke("replay", "--from", folder, "-n", 2)
    assert "what came before it was compared when it was saved" in " ".join(again.out.split())


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--from", "no-such-folder"), "is no saved state"),
        (("anchor-a", "--from", "x"), "CASE anchor-a cannot be given here"),
        (("--from", "x", "--dtype", "fp32", "--unpatched"), "--dtype, --unpatched cannot be given"),
        (("--from", "x", "--step", 1), "the saved state knows its step"),
        (("anchor-a", "--step", 9), "step 9 is not one of them"),
        (("anchor-a",), "--step"),
        (("anchor-a", "--step", 1, "--trials", 1), "--trials"),
        (("exhaustion", "--step", 2), "the SWA pool needs 30 more slots"),
    ],
)
def test_refusals(invoke: Invoke, args: tuple[object, ...], said: str) -> None:
    done = invoke("replay", *args)
    assert done.code == 2
    assert said in done.err
    assert done.out == ""
