"""Evidence that was touched is refused, by the name of what was touched."""

import json
import os
import shutil

import msgspec
import pytest

from swarepro import api
from swarepro.errors import BundleError
from swarepro.evidence import ledger
from swarepro.evidence.folder import write_manifest, write_once
from swarepro.evidence.schema import LEDGER, PLAN, Line
from swarepro.evidence.units import Unit
from tests.unit.evidence.fabricated import Story, fabricate, seal

TRIAL = "trials/a/factor-0/control-3.json"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return fabricate(tmp_path_factory.mktemp("evidence") / "whole")


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "e")


def edit(path, change):
    document = json.loads(path.read_bytes())
    change(document)
    path.write_bytes(json.dumps(document, separators=(",", ":")).encode())


def refused(folder, match=None):
    with pytest.raises(BundleError, match=match):
        api.conclude_evidence(folder)


def test_untouched_it_is_taken(folder):
    assert api.conclude_evidence(folder).answer == "LOCALIZED"


@pytest.mark.parametrize(
    "name",
    [TRIAL, PLAN, LEDGER, "conclusions.json", "trials/quiet/baseline-1/repeat-4.json"],
)
def test_a_changed_byte(folder, name):
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    refused(folder, rf"{name} was changed")


@pytest.mark.parametrize(
    "name", [TRIAL, "trials/a/replay/note.json", "trials/b/observer/off-2.json"]
)
def test_a_missing_file(folder, name):
    (folder / name).unlink()
    refused(folder, f"{name} is missing")
    write_manifest(folder)
    refused(folder, f"{name} is missing")


def test_a_missing_trial_that_was_forgotten_everywhere(folder):
    """Neither file, nor line, nor manifest: the plan still asks for it."""
    (folder / TRIAL).unlink()
    rewritten(folder, lambda line: line.what != TRIAL)
    write_manifest(folder)
    refused(folder, f"{TRIAL} is missing: the plan asks for it")


def rewritten(folder, keep, change=lambda line: line):
    """Write the ledger anew as somebody would who knows how its lines hang together."""
    lines = [line for line in ledger.read_ledger(folder) if keep(line)]
    (folder / LEDGER).unlink()
    previous = ""
    for seq, line in enumerate(lines):
        new = change(msgspec.structs.replace(line, seq=seq, previous=previous))
        text = msgspec.json.encode(new)
        previous = ledger.sha256(text)
        with (folder / LEDGER).open("ab") as file:
            file.write(text + b"\n")


def test_an_unknown_file(folder):
    (folder / "notes.txt").write_text("I was here")
    refused(folder, r"notes\.txt is unknown")
    write_manifest(folder)
    refused(folder, r"notes\.txt is unknown")


def test_an_unknown_trial_with_all_papers(folder):
    """Noted in the ledger and the manifest; the plan asks for no seventh control."""
    name = "trials/a/factor-0/control-6.json"
    content = json.loads((folder / TRIAL).read_bytes())
    write_once(folder, name, content, launch=content["launch"])
    write_manifest(folder)
    refused(folder, f"{name} is unknown: the plan asks for no such trial")


def test_a_digest_list_that_was_edited(folder):
    def flip(document):
        document["records"][3]["digest"] = "0" * 32

    edit(folder / TRIAL, flip)
    write_manifest(folder)
    refused(folder, f"{TRIAL} was changed: the ledger")


def test_a_digest_list_that_was_edited_with_the_ledger(folder):
    """The line before the next names the line as it was."""
    edit(folder / TRIAL, lambda document: document.update(tokens=[1]))
    digest = ledger.sha256((folder / TRIAL).read_bytes())
    lines = (folder / LEDGER).read_bytes().splitlines()
    for number, text in enumerate(lines):
        line = msgspec.json.decode(text, type=Line)
        if line.what == TRIAL:
            lines[number] = msgspec.json.encode(msgspec.structs.replace(line, digest=digest))
    (folder / LEDGER).write_bytes(b"\n".join(lines) + b"\n")
    write_manifest(folder)
    refused(folder, "does not follow the line before it")


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("answer", lambda d: d.update(answer="NOT_REPRODUCED")),
        ("conditions", lambda d: d["conditions"][5].update(met=False)),
        ("stabilisers", lambda d: d["stabilisers"].append("sync-before-attention")),
        ("anchors", lambda d: d["anchors"][0]["baseline"].update(trials=600)),
        ("launches", lambda d: d.update(launches=99)),
        ("more", lambda d: d.update(more="fine")),
    ],
)
def test_a_flag_that_was_flipped(folder, field, change):
    edit(folder / "conclusions.json", change)
    write_manifest(folder)
    refused(folder, rf"conclusions\.json says what does not follow.*{field}")


def test_a_plan_that_was_changed_after_its_trials(folder):
    edit(folder / PLAN, lambda document: document.update(chance=0.5))
    write_manifest(folder)
    refused(folder, "was changed after the diagnosis began")


def test_a_plan_that_was_written_after_its_trials(folder):
    """The ledger's first line was made to fit; the trials still name the plan they ran under."""
    consistently(folder, PLAN, lambda document: document.update(chance=0.5))
    refused(folder, "was run under another plan")


def test_a_plan_with_a_later_date(folder):
    consistently(
        folder, PLAN, lambda document: document.update(written="2999-01-01T00:00:00+00:00")
    )
    refused(folder, "was written after its trials")


def test_a_case_that_is_not_its_digest(folder):
    consistently(folder, PLAN, lambda document: document["anchors"][0]["case"].update(name="other"))
    refused(folder, "the case a is not as its digest says")


def test_a_trial_under_another_schedule(folder):
    consistently(folder, TRIAL, lambda document: document.update(schedule="program"))
    refused(folder, f"{TRIAL} ran under program; the plan says seeded:3")


def consistently(folder, name, change):
    """Edit a file, and the ledger with it, as somebody would who wants to be believed."""
    edit(folder / name, change)
    digest = ledger.sha256((folder / name).read_bytes())

    def fit(line):
        return msgspec.structs.replace(line, digest=digest) if line.what == name else line

    rewritten(folder, lambda line: True, fit)
    write_manifest(folder)


def without_last(document):
    del document["records"][-1]


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (TRIAL, without_last, "has other boundaries"),
        (TRIAL, lambda d: d["records"].append(d["records"][-1]), "has a boundary twice"),
        (TRIAL, lambda d: d.update(step=0), "is of step 0; step 1 is the first"),
        (TRIAL, lambda d: d.update(state=None), "is not of its kind"),
        (TRIAL, lambda d: d.update(inputs=None), "is not of its kind"),
        ("trials/a/replay/trial-2.json", lambda d: d.update(changed=[]), "changed no state"),
        ("trials/a/replay/trial-2.json", lambda d: d.update(step=0), "is of step 0"),
        ("trials/a/baseline-0/repeat-0.json", lambda d: d.update(state="x"), "is not of its kind"),
        ("states/a/state.json", lambda d: d.update(digests={"all": "x"}), "is not the state"),
    ],
)
def test_what_a_trial_says_of_itself_must_hang_together(folder, name, change, said):
    consistently(folder, name, change)
    refused(folder, said)


def test_one_process_is_not_two(folder):
    """Both parts of a baseline by launch 1."""
    digests = {}
    for name in [f"trials/a/baseline-1/repeat-{index}.json" for index in (3, 4, 5)]:
        edit(folder / name, lambda document: document.update(launch=1))
        digests[name] = ledger.sha256((folder / name).read_bytes())

    def fit(line):
        if line.what not in digests:
            return line
        return msgspec.structs.replace(line, digest=digests[line.what], launch=1)

    rewritten(folder, lambda line: True, fit)
    write_manifest(folder)
    refused(folder, "these are no fresh processes")


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(processes=0),
        lambda d: d.update(repeats=-3),
        lambda d: d.update(trials=0),
        lambda d: d.update(trials=10**8),
        lambda d: d.update(anchors=[]),
        lambda d: d["anchors"].append(d["anchors"][0]),
    ],
)
def test_a_plan_that_asks_for_nothing_or_for_too_much(folder, change):
    consistently(folder, PLAN, change)
    refused(folder)


@pytest.mark.parametrize("what", ["/dev/zero", "../../x", "trials/a/\0.json", "", "notes"])
def test_a_line_of_a_file_that_no_diagnosis_writes(folder, what):
    ledger.append(folder, "file", launch=1, what=what, digest="0" * 64)
    write_manifest(folder)
    refused(folder, "asks for nothing like it")


def test_a_manifest_that_is_no_file(folder):
    (folder / "MANIFEST.sha256").unlink()
    os.mkfifo(folder / "MANIFEST.sha256")
    refused(folder, "MANIFEST")


def test_counts_that_were_raised(folder):
    """Ten repeats that were never run, in a plan that all else was made to fit."""
    consistently(folder, PLAN, lambda document: document.update(repeats=5))
    refused(folder, "has 6 schedules; its counts ask for 10")


@pytest.mark.parametrize("where", [0, 1, 7, -1])
def test_a_line_that_was_taken_out_of_the_ledger(folder, where):
    lines = (folder / LEDGER).read_bytes().splitlines(keepends=True)
    del lines[where]
    (folder / LEDGER).write_bytes(b"".join(lines))
    write_manifest(folder)
    refused(folder, r"does not follow|unknown|first line|has no end")


def test_a_trial_that_was_written_twice(folder):
    digest = ledger.sha256((folder / TRIAL).read_bytes())
    launch = json.loads((folder / TRIAL).read_bytes())["launch"]
    ledger.append(folder, "file", launch=launch, what=TRIAL, digest=digest)
    write_manifest(folder)
    refused(folder, f"{TRIAL} was written twice")


def test_a_launch_that_never_began(folder):
    rewritten(folder, lambda line: not (line.event == "launch" and line.launch == 3))
    write_manifest(folder)
    refused(folder, "is launch 4, after 2 launches|never began")


def test_a_failure_that_was_hidden(tmp_path):
    """Without its line the unit is only missing."""
    unit = Unit("b", "factor", 1)
    folder = fabricate(tmp_path / "e", failed=(unit,))
    assert api.conclude_evidence(folder).answer == "BLOCKED"
    rewritten(folder, lambda line: line.event != "failed")
    write_manifest(folder)
    refused(folder, "is missing: the plan asks for it, and no launch failed")


def test_a_link(folder):
    (folder / "trials" / "a" / "more.json").symlink_to("/etc/hostname")
    refused(folder, "neither a file nor a folder")


def test_no_manifest_yet(folder):
    (folder / "MANIFEST.sha256").unlink()
    with pytest.raises(BundleError) as caught:
        api.conclude_evidence(folder)
    assert "--resume" in caught.value.hint


@pytest.mark.parametrize("name", [PLAN, LEDGER, TRIAL])
@pytest.mark.parametrize("data", [b"", b"{}", b"[" * 5000, b"\xff\xfe", b'{"seq": "x"}'])
def test_what_is_no_json_of_ours(folder, name, data):
    (folder / name).write_bytes(data)
    write_manifest(folder)
    refused(folder)


def test_a_folder_that_is_none(tmp_path):
    refused(tmp_path, r"is no evidence: it has no plan\.json")
    refused(tmp_path / "none", r"none is no folder")


def test_nothing_is_overwritten(tmp_path):
    folder = fabricate(tmp_path / "e", Story(anchors=("a",)))
    with pytest.raises(BundleError, match="nothing in evidence is overwritten"):
        write_once(folder, "trials/a/replay/trial-0.json", {}, launch=1)
    seal(folder)
    assert api.conclude_evidence(folder).answer == "LOCALIZED"
