"""The commands that look: what they print and which calls they make."""

import json
from pathlib import Path
from typing import Any

import pytest

from swarepro import api
from swarepro.errors import CapacityError
from swarepro.points import ALL
from swarepro.runs.results import CaseResult, CheckResult
from tests.cli.conftest import Invoke
from tests.unit.report import made


def test_points_are_listed_in_execution_order(invoke: Invoke) -> None:
    done = invoke("points")
    assert done.code == 0
    lines = done.out.splitlines()
    places = [[point.name in line.split()[1:2] for line in lines].index(True) for point in ALL]
    assert places == sorted(places)
    listed = invoke("points", "--json").document["points"]
    assert [row["name"] for row in listed] == [point.name for point in ALL]
    assert listed[4] == {
        "order": 4,
        "name": "swa_slots",
        "scope": "step",
        "kind": "metadata",
        "level": "op",
        "dims": ["C"],
        "inputs": ["full_slots"],
        "optional": False,
    }


def test_faults(invoke: Invoke) -> None:
    done = invoke("faults")
    assert done.code == 0
    assert "skip-swa-allocation" in done.out
    names = [row["name"] for row in invoke("faults", "--json").document["faults"]]
    assert names == [fault.name for fault in api.fault_summaries()]


def test_doctor_describes_and_does_not_judge(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = (
        api.DoctorLine(what="torch", found="2 [/x]", ok=True, why="here"),
        api.DoctorLine(what="triton", found="none", ok=False, why="no GPU"),
    )
    monkeypatch.setattr(api, "doctor", lambda: lines)
    done = invoke("doctor")
    assert done.code == 0
    assert done.out.startswith("1 of 2 things that swarepro can use are not here.")
    assert "2 [/x]" in done.out
    assert invoke("doctor", "--json").document["lines"][1]["ok"] is False


def test_cases_are_listed_shown_and_suggested(invoke: Invoke) -> None:
    listed = invoke("cases")
    assert listed.code == 0
    assert listed.out == invoke("cases", "list").out
    assert "67 = 64 + 3" in listed.out
    names = [row["name"] for row in invoke("cases", "list", "--json").document["cases"]]
    assert names == list(api.shipped_cases())
    shown = invoke("cases", "show", "anchor-a")
    assert shown.out == api.shipped_cases()["anchor-a"].read_text()
    assert invoke("cases", "show", "anchor-a", "--json").document["name"] == "anchor-a"
    wrong = invoke("cases", "show", "anchor-aa")
    assert wrong.code == 2
    assert "did you mean 'anchor-a'?" in wrong.err


def judged(monkeypatch: pytest.MonkeyPatch, *, ok: dict[str, bool | None]) -> None:
    def judge_case(case: Any, *, progress: Any) -> CaseResult:
        good = ok.get(case.name, True)
        if good is None:
            raise CapacityError("no slot [/x]")
        check = CheckResult(arm="faulty", what="verdict", wanted="A", found="B", ok=good)
        return CaseResult(case=case, checks=(check,))

    monkeypatch.setattr(api, "judge_case", judge_case)


def test_cases_run_ends_as_its_worst_case(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    judged(monkeypatch, ok={})
    good = invoke("cases", "run", "anchor-a", "control")
    assert good.code == 0
    assert good.out.startswith("2 of 2 cases found what they should.")
    judged(monkeypatch, ok={"control": False})
    bad = invoke("cases", "run", "--all")
    assert bad.code == 1
    assert "control: FAILED" in bad.out
    assert "WRONG" in bad.out
    judged(monkeypatch, ok={"anchor-a": False, "control": None})
    unsure = invoke("cases", "run", "anchor-a", "control", "one-row", "--json")
    assert unsure.code == 2
    rows = unsure.document["cases"]
    assert [row["ok"] for row in rows] == [False, False, True]
    assert rows[1]["error"] == {"kind": "CapacityError", "message": "no slot [/x]"}
    assert unsure.document["ok"] is False


def test_a_case_without_checks_is_not_ok(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        api, "judge_case", lambda case, *, progress: CaseResult(case=case, checks=())
    )
    done = invoke("cases", "run", "anchor-a")
    assert done.code == 1
    assert "it states no expectation" in done.out


@pytest.mark.parametrize("args", [(), ("anchor-a", "--all"), ("anchor-aa",)])
def test_cases_run_needs_names_or_all(invoke: Invoke, args: tuple[str, ...]) -> None:
    assert invoke("cases", "run", *args).code == 2


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (made.divergence(), 1),
        (made.identical(), 0),
        (made.identical(verdict="WITHIN_TOLERANCE"), 0),
        (made.identical(verdict="INCOMPARABLE"), 2),
    ],
)
def test_diff_exit_codes(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, found: Any, code: int
) -> None:
    calls: list[dict[str, Any]] = []

    def diff_runs(baseline: Path, target: Path, **options: Any) -> Any:
        calls.append({"baseline": baseline, "target": target, **options})
        return found

    monkeypatch.setattr(api, "diff_runs", diff_runs)
    done = invoke("diff-boundaries", "a", "b", "--json")
    assert done.code == code
    assert done.document["verdict"] == found.verdict
    assert invoke("diff-boundaries", "a", "b", "--align", "position", "--max-ulp", "2").code == code
    assert (calls[0]["align"], calls[0]["tolerance"], calls[0]["verify"]) == (None, None, False)
    assert (calls[1]["align"], calls[1]["tolerance"].max_ulp) == ("position", 2)


def test_one_tolerance_alone_is_refused_before_anything_is_read(invoke: Invoke) -> None:
    done = invoke("diff-boundaries", "a", "b", "--atol", "1e-5")
    assert done.code == 2
    assert "--atol is given without --rtol" in done.err


def test_inspect(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def inspect_bundle(bundle: Path, *, verify: bool, progress: Any) -> api.Inspection:
        calls.append(verify)
        clean = len(calls) > 1
        return api.Inspection(
            path=bundle,
            manifest=made.manifest(
                ownership=(made.ownership() if clean else made.ownership(made.VIOLATION),)
            ),
            records=(made.record(0),),
            verified=int(verify),
        )

    monkeypatch.setattr(api, "inspect_bundle", inspect_bundle)
    assert invoke("inspect", "runs/r1").code == 1
    clean = invoke("inspect", "runs/r1", "--no-verify")
    assert clean.code == 0
    assert "not verified" in clean.out
    assert calls == [True, False]
    assert invoke("inspect", "runs/r1", "--json").document["bundle"] == "runs/r1"


def repeated(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> list[dict[str, Any]]:
    from swarepro.runs.results import RepeatResult

    calls: list[dict[str, Any]] = []

    def repeat_case(case: Any, **options: Any) -> RepeatResult:
        calls.append({"case": case, **options})
        kept = (Path("k e/a"), Path("k e/b")) if options["keep"] else ()
        return RepeatResult(determinism=made.determinism(**changes), ownership=(), kept=kept)

    monkeypatch.setattr(api, "repeat_case", repeat_case)
    return calls


def test_determinism_passes_its_options_and_says_what_is_next(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = repeated(monkeypatch)
    done = invoke("determinism", "anchor-a", "-n", 3, "--fresh-process", "--keep", "k e")
    assert done.code == 1
    assert calls[0]["repeats"] == 3
    assert calls[0]["fresh_process"] is True
    assert calls[0]["keep"] == Path("k e")
    assert "swarepro diff-boundaries 'k e/a' 'k e/b'\n" in done.out
    assert "--keep DIR" in invoke("determinism", "anchor-a").out
    assert calls[1]["repeats"] == 6


def test_determinism_with_missing_boundaries_cannot_judge(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    from swarepro.compare.types import OneSided

    repeated(monkeypatch, only_some=(OneSided(step=1, name="logits"),))
    done = invoke("determinism", "anchor-a", "--json")
    assert done.code == 2
    assert "step 1, logits" in done.document["error"]["message"]


def test_determinism_of_a_case_that_asks_for_one_repeat(invoke: Invoke, tmp_path: Path) -> None:
    text = api.shipped_cases()["anchor-a"].read_text()
    path = tmp_path / "once.toml"
    path.write_text("repeats = 1\n" + text)
    done = invoke("determinism", path)
    assert done.code == 2
    assert "nothing can vary in fewer than 2" in done.err


def test_synth(invoke: Invoke, tmp_path: Path) -> None:
    done = invoke("synth", "gemma4-tiny", tmp_path / "m", "--shards", 2, "--json")
    assert done.code == 0
    files = [Path(entry["path"]) for entry in done.document["files"]]
    assert all(path.stat().st_size for path in files)
    assert json.loads((tmp_path / "m" / "config.json").read_text())
    again = invoke("synth", "gemma4-tiny", tmp_path / "m")
    assert again.code == 2
    wrong = invoke("synth", "gemma4-tinyy", tmp_path / "n")
    assert wrong.code == 2
    assert "did you mean" in wrong.err


def test_a_floor_tells_noise_from_a_wrong_value(invoke, tmp_path):
    model = ("--model", "synthetic:gemma4-tiny?layers=6", "--tokens", "1,2,3,4,5,6,7,8,9,10,11,12")
    floor = tmp_path / "floor.json"
    made = invoke("calibrate", *model, "--out", floor)
    assert made.code == 0
    assert "legal variants of adhoc" in made.out
    for name, more in (("a", ()), ("b", ("--chunks", "5,7")), ("bad", ("--unpatched",))):
        invoke("run", *model, "--out", tmp_path, "--run-id", name, *more)
    noise = invoke("diff-boundaries", tmp_path / "a", tmp_path / "b", "--floor", floor, "--json")
    assert noise.code == 0
    assert json.loads(noise.out)["verdict"] in ("NOISE", "IDENTICAL")
    wrong = invoke("diff-boundaries", tmp_path / "a", tmp_path / "bad", "--floor", floor)
    assert wrong.code == 1
    assert "WRONG. step 0, L0_kv_slice_post_write (layer 0, state)" in wrong.out.replace("\n", " ")
    assert max(map(len, wrong.out.splitlines())) <= 100


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--floor", "no-such-file"), "cannot read no-such-file"),
        (("--floor", "f", "--atol", 1), "--atol cannot be given with --floor"),
        (("--floor", "f", "--align", "step", "--verify"), "--align, --verify cannot be given"),
        (("--margin", 3), "--margin is of a floor"),
    ],
)
def test_a_floor_that_cannot_be_used(invoke, tmp_path, args, said):
    model = ("--model", "synthetic:gemma4-tiny?layers=2", "--tokens", "1,2,3")
    invoke("run", *model, "--out", tmp_path, "--run-id", "a")
    done = invoke("diff-boundaries", tmp_path / "a", tmp_path / "a", *args)
    assert done.code == 2
    assert said in done.err
    assert done.out == ""


def test_the_dense_reference_of_a_run(invoke, tmp_path):
    model = ("--model", "synthetic:gemma3-tiny", "--dtype", "fp32", "--tokens", "1,2,3,4,5")
    told = invoke("run", *model, "--engine", "dense-fp64", "--out", tmp_path, "--run-id", "d")
    assert told.code == 0
    assert "engine dense-fp64" in told.out.replace("\n", " ")
    invoke("run", *model, "--out", tmp_path, "--run-id", "p")
    exact = invoke("diff-boundaries", tmp_path / "d", tmp_path / "p")
    assert exact.code == 2
    assert "engine dense-fp64 against paged" in exact.err
    near = invoke("diff-boundaries", tmp_path / "d", tmp_path / "p", "--atol", 1e-4, "--rtol", 1e-4)
    assert near.code == 0
    refused = invoke("run", *model, "--engine", "dense", "--unpatched", "--out", tmp_path)
    assert refused.code == 2
    assert "no fault: skip-swa-allocation" in refused.err


def test_slots_are_not_watched_where_there_are_none(invoke, tmp_path):
    model = ("--model", "synthetic:gemma3-tiny", "--tokens", "1,2,3", "--out", tmp_path)
    for engine in ("dense", "dense-fp64"):
        done = invoke("run", *model, "--engine", engine, "--ownership", "on")
        assert done.code == 2
        assert f"the engine {engine} has no slots to watch: ownership on was asked for" in done.err
        assert invoke("run", *model, "--engine", engine, "--ownership", "off").code == 0
    assert invoke("run", *model, "--ownership", "on").code == 0
