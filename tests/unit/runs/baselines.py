"""Runs, their baselines, and baselines with a digest that differs."""

from dataclasses import replace

from msgspec import structs

from swarepro.bundle.read import open_bundle
from swarepro.bundle.write import BundleWriter
from swarepro.case import CaseSpec, PromptSpec, SessionSpec
from swarepro.options import CaptureOptions, RunOptions, no_progress
from swarepro.runs.against import against_prepared
from swarepro.runs.once import run_to_bundle
from swarepro.runs.prepare import prepare
from tests.unit.scripts import case as scripted
from tests.unit.scripts import decode, prefill, reuse, rows

DIGESTS = RunOptions(capture=CaptureOptions(store="digest"))
BATCHES = scripted(
    rows(prefill(0, 6)),
    rows(prefill(0, 2), prefill(1, 8)),
    rows(decode(0), decode(1)),
    {"finish": [0], "keep": True},
    reuse(2, 0, 4),
    rows(decode(1), prefill(2, 8)),
    rows(decode(2)),
    {"finish": [1, 2]},
    sessions=({}, {}, {"prompt": {"random": 12}}),
    page_size=4,
)
ONE = CaseSpec(
    name="one",
    model="synthetic:gemma4-tiny?layers=6",
    capacity=64,
    sessions=(SessionSpec(prompt=PromptSpec(random=40, seed=3), chunk=32, decode=2),),
)


def prepared(case, **capture):
    return prepare(
        case,
        replace(DIGESTS, capture=replace(DIGESTS.capture, **capture)),
        copies=0,
        progress=no_progress,
    )


def baseline_of(ready, folder):
    run_to_bundle(ready, folder, schedule=ready.schedule, on_step=lambda step: None)
    return open_bundle(folder)


def flipped(bundle, folder, *chosen):
    """Write ``bundle`` again with other digests at the records of these indices."""
    manifest = bundle.manifest
    with BundleWriter(folder) as writer:
        for step in manifest.steps:
            for record in bundle.records:
                if record.step == step.index:
                    digest = record.digest
                    if record.index in chosen:
                        digest = ("0" if digest[0] != "0" else "1") + digest[1:]
                    writer.add(structs.replace(record, digest=digest))
            writer.end_step()
        kept = structs.asdict(manifest)
        for name in ("schema_version", "run_id", "num_records", "files", "seal"):
            del kept[name]
        writer.finish(**kept)
    return open_bundle(folder)


def against(ready, stored, folder, *, go_on=False):
    return against_prepared(ready, stored, folder, go_on=go_on, progress=no_progress)[1]


def place(record):
    return record.step, record.session, record.name
