"""A run against a baseline names the boundary that a comparison of two full bundles names."""

from dataclasses import replace

import pytest
from msgspec import structs

from swarepro.api import CaptureOptions, RunOptions, find_case
from swarepro.bundle.read import open_bundle
from swarepro.compare.divergence import compare_bundles
from swarepro.compare.inputs import InputGraph, Place
from swarepro.compare.types import Verdict
from swarepro.options import no_progress
from swarepro.runs.against import against_prepared
from swarepro.runs.once import run_to_bundle
from swarepro.runs.prepare import prepare

# Steps, sessions, stages, batches, evictions, resets and reuses; first boundaries of every kind.
FAULTY = {
    "anchor-a": (0, "swa_slots"),
    "cached-translation": (3, "swa_slots"),
    "chunk-local-positions": (1, "positions"),
    "copy-not-waited-for": (0, "L0_kv_slice_post_write"),
    "evict-too-early": (1, "swa_slots"),
    "free-pages-twice": (3, "full_slots"),
    "offset-of-even-split": (0, "L7_rotary_applied"),
    "other-reduction-order": (2, "L0_attention_output"),
    "padding-rows-stored": (1, "L0_attention_output"),
    "ring-prefix-reuse": (1, "swa_slots"),
    "sync-elided": (2, "L0_kv_slice_post_write"),
    "window-of-last-keys": (0, "L0_attention_output"),
}
BY_VALUES = ("anchor-a", "free-pages-twice", "ring-prefix-reuse")
_VALUES = ("L*", "after_layer_*", "embedding_output", "boundary_*", "logits")


def prepared(name, points=("*",)):
    capture = CaptureOptions(store="digest", points=points)
    return prepare(find_case(name), RunOptions(capture=capture), copies=0, progress=no_progress)


def faulty(healthy):
    options = replace(healthy.options, faults=(healthy.case.fault,))
    return replace(healthy, options=options)


def both_ways(one, other, root, *, schedules=("program", "program")):
    """Return the comparison of two full bundles, and of a run against the first of them."""
    for what, folder, schedule in zip((one, other), ("one", "other"), schedules, strict=True):
        run_to_bundle(what, root / folder, schedule=schedule, on_step=lambda step: None)
    full = compare_bundles(open_bundle(root / "one"), open_bundle(root / "other"))
    found = {}
    for go_on in (False, True):
        _, found[go_on] = against_prepared(
            replace(other, schedule=schedules[1]),
            open_bundle(root / "one"),
            root / f"against-{go_on}",
            go_on=go_on,
            progress=no_progress,
        )
    return full, found[False], found[True]


def inputs_of(first, bundle):
    """Return the captured boundaries that ``first`` is computed from, as the points declare them.

    What was captured ends the search; of another step, only what it holds over is looked at.
    """
    captured = {place_of(record): record for record in bundle.records}
    graph = InputGraph(bundle.manifest, lambda place: None)
    found, ahead = set(), [place_of(first)]
    while ahead:
        for parent in graph.parents(ahead.pop()):
            if parent in captured:
                found.add(parent)
            elif parent.step == first.step:
                ahead.append(parent)
    return found


def place_of(record):
    return Place(
        step=record.step,
        stage=record.stage,
        session=record.session,
        point=record.point,
        layer=record.layer,
    )


def is_of_first(against):
    """Return the stored records of the first mismatch."""
    first = against.divergence.first
    return [
        record
        for record in against.stored
        if (record.step, record.session, record.name)
        == (first.step, first.session, first.name.partition("#")[0])
    ]


@pytest.mark.parametrize(
    ("name", "points"),
    [
        *(pytest.param(name, ("*",), id=name) for name in FAULTY),
        *(pytest.param(name, _VALUES, id=f"{name}-values") for name in BY_VALUES),
    ],
)
def test_it_names_what_the_comparison_of_two_full_bundles_names(name, points, tmp_path):
    healthy = prepared(name, points)
    full, stopped, whole = both_ways(healthy, faulty(healthy), tmp_path)
    if points == ("*",):
        assert (full.first.step, full.first.name) == FAULTY[name]
    assert whole.divergence.boundaries == full.boundaries
    assert whole.divergence.first_value == full.first_value
    assert whole.divergence.compared == full.compared
    assert stopped.divergence.first == full.first
    assert stopped.divergence.last_identical == full.last_identical
    assert stopped.divergence.exact == full.exact
    assert stopped.steps_run == full.first.step + 1
    assert stopped.stored == whole.stored
    (first,) = is_of_first(stopped)
    other = open_bundle(tmp_path / "other")
    wanted = inputs_of(first, other) | {place_of(first)}
    assert {place_of(record) for record in stopped.stored} == wanted
    digests = {place_of(record): record.digest for record in other.records}
    for go_on in (False, True):
        written = open_bundle(tmp_path / f"against-{go_on}")
        assert written.verify() == len(wanted)
        assert all(digests[place_of(record)] == record.digest for record in written.records)


@pytest.mark.parametrize("name", ["anchor-a", "one-row"])
def test_a_race_is_named_as_two_full_bundles_show_it(name, tmp_path):
    racing = faulty(prepared(name))
    full, stopped, whole = both_ways(racing, racing, tmp_path, schedules=("seeded:1", "seeded:2"))
    assert (full.first.step, full.first.name) == (0, "L0_kv_slice_post_write")
    assert stopped.divergence.first == whole.divergence.first == full.first
    assert stopped.divergence.first.origin == "source"


@pytest.mark.parametrize("name", ["anchor-a", "finish-keeps-mapping", "ring-prefix-reuse"])
def test_control_an_equal_run_compares_every_digest(name, tmp_path):
    healthy = prepared(name)
    full, stopped, whole = both_ways(healthy, healthy, tmp_path)
    for against in (stopped, whole):
        assert against.divergence.verdict is Verdict.IDENTICAL
        assert (
            against.divergence.compared
            == full.compared
            == len(open_bundle(tmp_path / "one").records)
        )
        assert against.stored == ()
        assert against.steps_run == against.steps_planned


def test_another_stage_split_is_matched_as_a_comparison_matches_it(tmp_path):
    chain = prepared("anchor-a")
    case = structs.replace(chain.case, stages=None)
    single = prepare(case, chain.options, copies=0, progress=no_progress)
    full, stopped, whole = both_ways(single, chain, tmp_path)
    assert full.verdict is stopped.divergence.verdict is Verdict.IDENTICAL
    assert stopped.divergence == replace(
        full, target=stopped.divergence.target, differences=stopped.divergence.differences
    )
    full, stopped, whole = both_ways(single, faulty(chain), tmp_path / "faulty")
    assert stopped.divergence.first == full.first
    assert whole.divergence.boundaries == full.boundaries
