"""`swarepro ownership`, `fill-probe`, `--ownership`, and the table of `cases run`."""

import os
import shutil
from pathlib import Path

import pytest

from swarepro import api
from swarepro.runs.results import CaseResult, CheckResult

from .conftest import Invoke

SESSIONS = """
name = "pair"
model = "synthetic:gemma4-tiny?layers=6"
capacity = 64
page_size = 4
evict = true
script = [
  { rows = [{ session = 0, prefill = 20 }] },
  { rows = [{ session = 0, decode = true }, { session = 1, prefill = 9 }] },
  { finish = [0], keep = true },
  { reuse = { session = 2, of = 0, rows = 16 } },
  { rows = [{ session = 2, prefill = 4 }, { session = 1, decode = true }] },
  { finish = [1, 2] },
]
[[sessions]]
prompt = { random = 20, seed = 1 }
[[sessions]]
prompt = { random = 9, seed = 2 }
[[sessions]]
prompt = { random = 20, seed = 1 }
"""


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    path = tmp_path / "pair.toml"
    path.write_text(SESSIONS)
    return path


def test_one_run_names_the_cause(invoke: Invoke) -> None:
    done = invoke("ownership", "anchor-a", "--unpatched")
    assert done.code == 1
    assert done.out.startswith("Ownership: sentinel-store at step 0, stage 0, layer 0")
    first = invoke("ownership", "anchor-a", "--unpatched", "--json").document["first_violation"]
    assert (first["kind"], first["step"], first["layer"]) == ("sentinel-store", 0, 0)
    assert first["positions"] == list(range(64))


def test_a_healthy_run_has_nothing_to_say(invoke: Invoke) -> None:
    done = invoke("ownership", "anchor-a")
    assert done.code == 0
    assert done.out.startswith("No ownership rule was broken in 2 steps.")
    document = invoke("ownership", "anchor-a", "--json").document
    assert document["first_violation"] is None
    assert document["steps_done"] == document["steps"] == 2
    for owned in document["ownership"]:
        books = [owned[what] for what in ("free", "live", "evictable", "reserved")]
        assert sum(books) == owned["capacity"]


def test_several_sessions_come_out_even(invoke: Invoke, pair: Path, tmp_path: Path) -> None:
    document = invoke("ownership", pair, "--json").document
    assert document["first_violation"] is None
    assert all(owned["free"] == owned["capacity"] for owned in document["ownership"])
    done = invoke("run", pair, "--out", tmp_path, "--run-id", "r")
    assert done.code == 0
    assert "reuse 16 rows of 0 for 2" in done.out
    assert invoke("inspect", tmp_path / "r").code == 0


def test_a_run_that_ends_early_still_names_the_cause(invoke: Invoke, tmp_path: Path) -> None:
    args = ("full-slots-on-small-pool", "--fault", "full-slots-on-swa-pool")
    done = invoke("ownership", *args)
    assert done.code == 1
    assert "index-out-of-range" in done.out
    assert "There the runtime refused: SlotRangeError" in done.out
    ran = invoke("run", *args, "--out", tmp_path, "--run-id", "r")
    assert ran.code == 2
    assert "first by index-out-of-range at step 2" in ran.err
    assert not (tmp_path / "r").exists()


def test_a_refusal_without_a_violation_cannot_be_judged(invoke: Invoke) -> None:
    done = invoke("ownership", "exhaustion")
    assert done.code == 2
    assert "CapacityError" in done.err
    assert done.out == ""


def test_the_shadow_can_be_switched_off(invoke: Invoke, tmp_path: Path) -> None:
    done = invoke(
        "run", "anchor-a", "--unpatched", "--ownership", "off", "--out", tmp_path, "--json"
    )
    assert done.code == 0
    assert done.document["shadow"] is False
    assert done.document["first_violation"] is None
    assert all(not owned["violations"] for owned in done.document["ownership"])
    shown = invoke("inspect", done.document["bundle"])
    assert "Ownership was not checked" in shown.out


def test_the_shadow_changes_no_byte(tmp_path: Path) -> None:
    case = api.find_case("anchor-a")
    digests = []
    for index, watched in enumerate((True, False)):
        made = api.run_case(
            case,
            out=tmp_path,
            run_id=str(index),
            options=api.RunOptions(ownership=watched, faults=("skip-swa-allocation",)),
        )
        digests.append([record.digest for record in api.inspect_bundle(made.bundle).records])
    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    ("fault", "verdict", "first"),
    [
        (None, "INDEPENDENT", None),
        ("output-rows-unwritten", "UNWRITTEN_READ", (1, "L0_attention_output")),
        ("masked-lanes-multiply", "MASKED_LANE", (1, "L0_attention_output")),
    ],
)
def test_fill_probe(
    invoke: Invoke, fault: str | None, verdict: str, first: tuple[int, str] | None
) -> None:
    given = () if fault is None else ("--fault", fault)
    done = invoke("fill-probe", "anchor-a", *given, "--json")
    assert done.code == (0 if fault is None else 1)
    found = done.document
    assert found["verdict"] == verdict
    assert (found["first"] and (found["first"]["step"], found["first"]["name"])) == first
    assert found["compared"] == 384 - 24  # 12 layers, 2 steps, one point left out
    assert invoke("fill-probe", "anchor-a", *given).out.startswith(verdict)


def test_fill_probe_needs_something_to_compare(invoke: Invoke) -> None:
    done = invoke("fill-probe", "anchor-a", "--points", "L0_kv_slice_pre_write")
    assert done.code == 2
    assert "nothing that could show the fill was captured" in done.err


def test_page_size_and_eviction_are_options(invoke: Invoke) -> None:
    done = invoke("ownership", "anchor-a", "--page-size", 16, "--evict", "on", "--json")
    assert done.code == 0
    sliding = [owned for owned in done.document["ownership"] if owned["group"] == "sliding"]
    assert all((owned["live"], owned["reserved"]) == (67 - 16, 13) for owned in sliding)
    refused = invoke("ownership", "anchor-a", "--page-size", 7)
    assert refused.code == 2
    assert "128 is no whole number of pages of 7" in refused.err
    assert "use 126 or 133" in refused.err


def test_options_of_one_session_need_one_session(invoke: Invoke, pair: Path) -> None:
    done = invoke("ownership", pair, "--decode", 3)
    assert done.code == 2
    assert "has a script" in done.err


def test_cases_run_prints_one_table(invoke: Invoke, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    done = invoke("cases", "run", "control", "full-slots-on-equal-pool", "--markdown", page)
    assert done.code == 0
    assert "2 of 2 cases found what they should." in done.out
    assert "sentinel-store @0 L0" in done.out
    text = page.read_text()
    assert "| A9 | `full-slots-on-equal-pool` |" in text
    assert "silent" in text


def test_the_detection_page_is_that_of_the_cases() -> None:
    from swarepro.report.detection import detection_page

    rows = [api.detection_row(api.find_case(name)) for name in api.shipped_cases()]
    page = Path(__file__).parents[2] / "docs" / "detection.md"
    assert page.read_text(encoding="utf-8") == detection_page(rows), "run `make detection`"


def test_a_layer_table_that_no_weights_fit_is_refused(invoke: Invoke) -> None:
    """Gemma 4's kinds differ in shape: the wrong table cannot run, and ownership says why."""
    done = invoke("ownership", "buffers-by-another-mix", "--fault", "offset-of-even-split")
    assert done.code == 1
    text = " ".join(done.out.split())
    assert text.startswith("Ownership: layer-table at step 0")
    assert "LayerTableError: layer 5 takes its shapes from layer 7" in text


def test_a_table_that_cannot_be_written_is_refused_before_anything_runs(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, why in (
        (tmp_path, "it is a folder"),
        (pipe, "it is no regular file"),
        (Path(os.devnull), "it is no regular file"),
        (tmp_path / "missing" / "page.md", "no such file or directory"),
        (tmp_path / ("x" * 300), "file name too long"),
    ):
        monkeypatch.setattr(api, "judge_case", lambda *_, **__: pytest.fail("it ran"))
        done = invoke("cases", "run", "control", "--json", "--markdown", path)
        assert done.code == 2
        assert f"--markdown {path} cannot be written: {why}" in done.err
        assert done.document["error"]["kind"] == "UsageError"  # one document, and no other
    assert list(tmp_path.iterdir()) == [pipe]


def judged(*, ok: bool) -> CaseResult:
    check = CheckResult(arm="diff", what="verdict", wanted="a", found="a" if ok else "b", ok=ok)
    return CaseResult(case=api.find_case("control"), checks=(check,))


@pytest.mark.parametrize("ok", [True, False])
def test_a_table_replaces_the_old_one_only_if_all_is_well(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ok: bool
) -> None:
    page = tmp_path / "page.md"
    page.write_text("old")
    page.chmod(0o640)
    link = tmp_path / "link.md"
    link.symlink_to(page)
    monkeypatch.setattr(api, "judge_case", lambda *_, **__: judged(ok=ok))
    done = invoke("cases", "run", "control", "--json", "--markdown", link)
    assert (done.code, done.document["ok"]) == ((0, True) if ok else (1, False))
    assert page.read_text().startswith("# " if ok else "old")
    assert page.stat().st_mode & 0o777 == 0o640
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, page]


def test_a_table_that_fails_at_the_end_gives_one_document(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()

    def gone(*_: object, **__: object) -> CaseResult:
        shutil.rmtree(folder)
        return judged(ok=True)

    monkeypatch.setattr(api, "judge_case", gone)
    done = invoke("cases", "run", "control", "--json", "--markdown", folder / "page.md")
    assert done.code == 2
    assert "cannot be written" in done.document["error"]["message"]


def test_a_refusal_that_breaks_no_rule_keeps_its_hint(invoke: Invoke) -> None:
    done = invoke("ownership", "exhaustion")
    assert done.code == 2
    assert "CapacityError" in done.err
    assert "hint: raise the capacity, shorten the sessions, or finish one; no ownership" in done.err


def test_cases_run_of_one_case_counts_nothing(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    for ok, said in ((True, "The case found"), (False, "The case did not find")):
        monkeypatch.setattr(api, "judge_case", lambda *_, ok=ok, **__: judged(ok=ok))
        assert invoke("cases", "run", "control").out.startswith(f"{said} what it should.")
