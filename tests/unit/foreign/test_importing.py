"""From a dump to a bundle: what is matched, what is refused, and that nothing is half written."""

import json
import os
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from swarepro import api
from swarepro.bundle.captured import lacking
from swarepro.bundle.digest import digest_bytes
from swarepro.bundle.read import open_bundle
from swarepro.errors import BundleError, ForeignError
from swarepro.foreign import matching
from swarepro.foreign.importing import import_dump, open_dump
from swarepro.foreign.load_map import find_map, read_map
from swarepro.foreign.patterns import MAX_NAME
from tests.unit.foreign.dumps import (
    HEADER,
    LAYERS,
    RULES,
    bring,
    check,
    map_text,
    save_npy,
    tiny_run,
    write_map,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "dump").mkdir()
    return tmp_path / "dump"


def refused(folder: Path, tensors, text: str | None = None) -> str:
    """Import, demand a refusal that leaves nothing, and return why."""
    out = folder.parent / "bundle"
    before = sorted(folder.parent.iterdir())
    with pytest.raises(ForeignError) as caught:
        bring(save_npy(tensors, folder), out, text)
    (folder.parent / "map.toml").unlink()
    assert sorted(folder.parent.iterdir()) == before
    return str(caught.value)


def test_a_dump_becomes_a_bundle_that_every_reader_takes(folder):
    tensors = tiny_run(4, 3, 1)
    result = bring(save_npy(tensors, folder), folder.parent / "bundle")
    bundle = open_bundle(folder.parent / "bundle")
    manifest = bundle.manifest
    assert bundle.verify() == len(bundle.records) == result.num_records == 3 * (4 + 5 * LAYERS)
    assert manifest.backend.engine == "tiny"
    assert (manifest.shadow, manifest.ownership, manifest.num_layers) == (False, (), LAYERS)
    spans = [(s.phase, s.spans[0].start, s.spans[0].end) for s in manifest.steps]
    assert spans == [("prefill", 0, 4), ("prefill", 4, 7), ("decode", 7, 8)]
    assert manifest.prompts == ((*tensors["s0.ids"], *tensors["s1.ids"]),)
    assert manifest.tokens == ((*tensors["s1.token"], *tensors["s2.token"]),)
    assert "L*_qkv_projected" in manifest.capture.points
    assert lacking(manifest, bundle.records) == frozenset()  # q_normed is unknown, and not absent
    everything = msgspec.structs.replace(manifest.capture, points=("*",))
    claimed = msgspec.structs.replace(manifest, capture=everything)
    assert "L{layer}_q_normed" in lacking(claimed, bundle.records)
    places = {(record.step, record.name): record for record in bundle.records}
    attended = places[1, "L2_attention_output"]
    assert (attended.shape, attended.row_start) == ((3, 4, 4), 4)
    assert bundle.tensor(attended).tobytes() == tensors["s1.l2.attn"].tobytes()
    assert places[2, "logits"].row_start == 7
    assert api.inspect_bundle(folder.parent / "bundle").verified == result.num_records


def test_two_imports_are_identical_and_a_flipped_bit_is_found(folder, tmp_path):
    tensors = tiny_run(4, 1)
    bring(save_npy(tensors, folder), tmp_path / "one")
    bring(folder, tmp_path / "two")
    assert api.diff_runs(tmp_path / "one", tmp_path / "two").verdict == "IDENTICAL"
    tensors["s1.l1.qkv"].view(np.uint32)[0, 17] ^= 1
    bring(save_npy(tensors, folder), tmp_path / "three")
    found = api.diff_runs(tmp_path / "one", tmp_path / "three")
    assert found.verdict == "DIVERGED"
    assert (found.first.step, found.first.name) == (1, "L1_qkv_projected")
    assert (found.first.numbers.heads, found.first.numbers.num_heads) == ((4,), 8)


@pytest.mark.parametrize("kind", ["npy", "torch", "safetensors"])
def test_every_format_gives_the_same_bundle(kind, folder, tmp_path):
    tensors = tiny_run(4, 1)
    bring(save_npy(tensors, folder), tmp_path / "npy")
    other = tmp_path / "other"
    other.mkdir()
    text = map_text()
    if kind == "npy":
        save_npy({name: np.asfortranarray(array) for name, array in tensors.items()}, other)
    elif kind == "torch":
        for name, array in tensors.items():
            torch.save(torch.from_numpy(array), other / f"{name}.pt")
    else:
        from safetensors.numpy import save_file

        save_file(tensors, other / "all.safetensors", metadata={"format": "pt"})
        text = text.replace('"s{step}', '"all:s{step}')
    bring(other, tmp_path / "bundle", text, kind=kind)
    assert api.diff_runs(tmp_path / "npy", tmp_path / "bundle").verdict == "IDENTICAL"


def test_digests_compare_with_tensors(folder, tmp_path):
    tensors = tiny_run(4, 1)
    bring(save_npy(tensors, folder), tmp_path / "npy")
    lines = [
        {
            "name": name,
            "dtype": {"f": "F32", "i": "I64"}[array.dtype.kind],
            "shape": array.shape,
            "digest": digest_bytes(array.tobytes()),
        }
        for name, array in tensors.items()
    ]
    path = tmp_path / "d.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    bring(path, tmp_path / "digests", kind="digests")
    assert api.diff_runs(tmp_path / "npy", tmp_path / "digests").verdict == "IDENTICAL"
    assert open_bundle(tmp_path / "digests").manifest.capture.store == "digest"
    lines[7]["digest"] = "0" * 32
    path.write_text("\n".join(map(json.dumps, lines)))
    bring(path, tmp_path / "other", kind="digests")
    assert api.diff_runs(tmp_path / "npy", tmp_path / "other").verdict == "DIVERGED"


def test_a_line_of_digests_may_say_its_place_beside_its_name(folder, tmp_path):
    fields = {"dtype": "F32", "shape": [4, 8]}
    lines = [
        {"name": "o", "step": 3, "layer": layer, "digest": f"{layer:032x}", **fields}
        for layer in (0, 1)
    ]
    path = tmp_path / "d.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    header = 'names = "tags"\n' + HEADER
    bring(path, tmp_path / "out", map_text({"L{layer}_o_proj": 'name = "o"'}, header=header),
          kind="digests")  # fmt: skip
    records = open_bundle(tmp_path / "out").records
    assert [(record.name, record.digest[-1]) for record in records] == [
        ("L0_o_proj", "0"),
        ("L1_o_proj", "1"),
    ]


def test_a_digest_cannot_be_turned(folder, tmp_path):
    path = tmp_path / "d.jsonl"
    fields = {"dtype": "F32", "shape": [4, 4, 4], "digest": "0" * 32}
    path.write_text(json.dumps({"name": "s0.l0.attn", **fields}))
    body = 'name = "s{step}.l{layer}.attn"\nlayout = '
    whole = map_text({"L{layer}_attention_output": body + '"T H D"'})
    bring(path, tmp_path / "whole", whole, kind="digests")
    turned = map_text({"L{layer}_attention_output": body + '"T D H"'})
    with pytest.raises(ForeignError, match="cannot be split, joined or turned"):
        bring(path, tmp_path / "turned", turned, kind="digests")


def test_checking_says_all_and_writes_nothing(folder):
    tensors = tiny_run(4, 1)
    tensors["s0.l0.gate"] = tensors["s0.l1.gate"] = np.zeros((4, 2))
    del tensors["s1.l1.attn"]
    before = sorted(folder.parent.iterdir())
    result = check(save_npy(tensors, folder))
    (folder.parent / "map.toml").unlink()
    assert sorted(folder.parent.iterdir()) == before
    assert result.problems == ()
    assert result.unmatched_names == (("sN.lN.gate", 2),)
    missing = {rule.point: rule.missing for rule in result.rules if rule.missing}
    assert missing == {"L{layer}_attention_output": "step 1 layer 1"}
    assert result.bundle is None


def test_names_that_the_map_skips_are_not_reported(folder):
    tensors = tiny_run(4)
    tensors["s0.junk"] = np.zeros(3)
    result = check(save_npy(tensors, folder), map_text(header='skip = ["*junk"]\n' + HEADER))
    assert (result.unmatched, result.skipped) == ((), 1)


def test_two_tensors_for_one_boundary_are_ambiguous(folder):
    tensors = tiny_run(4)
    tensors["s00.logits"] = tensors["s0.logits"]
    why = refused(folder, tensors)
    assert "ambiguous: logits of step 0" in why
    assert "s00.logits" in why


def test_two_rules_for_one_boundary_are_ambiguous(folder):
    tail = '[[points]]\npoint = "logits"\nname = "*logits*"\n'
    why = refused(folder, tiny_run(4), map_text(tail=tail))
    assert "ambiguous: logits of step 0: points 7 and 9 of the map give it" in why


def test_a_missing_rank_and_a_missing_source_are_incomplete(folder):
    tensors = tiny_run(4)
    rules = dict(RULES)
    rules["L{layer}_o_proj"] = 'name = "s{step}.l{layer}.o{rank}"\nranks = "E"'
    for layer in range(LAYERS):
        for rank in (0, 1, 3):
            tensors[f"s0.l{layer}.o{rank}"] = np.ones((4, 2), np.float32) + rank + layer
    why = refused(folder, tensors, map_text(rules))
    assert "L0_o_proj of step 0: rank 2 of 4 is missing" in why
    rules = dict(RULES)
    rules["L{layer}_rotary_applied"] = (
        'name = ["s{step}.l{layer}.qr", "s{step}.l{layer}.kr"]\njoin = "J"'
    )
    tensors = {**tiny_run(4), "s0.l0.qr": np.zeros((4, 4, 4), np.float32)}
    for path in folder.iterdir():
        path.unlink()
    why = refused(folder, tensors, map_text(rules))
    assert "L0_rotary_applied of step 0: no tensor for 's{step}.l{layer}.kr'" in why


def test_no_name_matches(folder):
    why = refused(folder, {"a": np.zeros(1), "b": np.zeros(1)})
    assert "no name of 2 matches a pattern" in why
    assert "its first names are a, b" in why


def test_too_many_names_for_too_many_patterns(folder, monkeypatch):
    monkeypatch.setattr(matching, "MOST_MATCHES", 100)
    assert "more than 100 to try" in refused(folder, tiny_run(4))


@pytest.mark.parametrize(
    ("name", "array", "why"),
    [
        ("s0.l1.mlp", np.zeros((3, 8), "f4"), "has 3 rows, and the step has 4"),
        ("s0.l1.mlp", np.zeros((1, 4, 8), "f4"), "has 2 dimensions"),
        ("s0.ids", np.zeros(4, "f4"), "F32, wanted integers"),
        ("s0.logits", np.zeros((4, 5), "f4"), "4 rows, and its spans have 1"),
        ("s0.pos", np.arange(4) * 2, "not consecutive"),
        ("s0.l1.mlp", np.zeros((4, 8), "c8"), "dtype is <c8"),
    ],
)
def test_tensors_that_do_not_fit_their_step(name, array, why, folder):
    assert why in refused(folder, {**tiny_run(4), name: array})


def test_the_last_row_of_all(folder, tmp_path):
    tensors = tiny_run(4)
    tensors["s0.logits"] = np.arange(20, dtype=np.float32).reshape(1, 4, 5)
    rules = {**RULES, "logits": 'name = "s{step}.logits"\nlayout = "1 T V"\nrows = "last"'}
    bring(save_npy(tensors, folder), tmp_path / "out", map_text(rules))
    bundle = open_bundle(tmp_path / "out")
    (logits,) = [record for record in bundle.records if record.name == "logits"]
    assert bundle.tensor(logits).tolist() == [[15, 16, 17, 18, 19]]


STEPS = """
[[steps]]
step = 1
spans = [{ session = 1, start = 0, end = 3 }, { session = 0, start = 0, end = 1 }]
[[steps]]
step = 0
reset = true
spans = [{ session = 0, start = 8, end = 12 }]
"""


def test_stated_steps_cut_a_batch_into_its_sessions(folder, tmp_path):
    tensors = tiny_run(4, 4)
    tensors["s0.pos"] = np.arange(8, 12)
    tensors["s1.pos"] = np.array([0, 1, 2, 0])
    tensors["s1.logits"] = np.arange(10, dtype=np.float32).reshape(2, 5)
    tensors["s1.token"] = np.array([7, 8])
    bring(save_npy(tensors, folder), tmp_path / "out", map_text(tail=STEPS))
    bundle = open_bundle(tmp_path / "out")
    assert [(step.reset, len(step.spans)) for step in bundle.manifest.steps] == [
        (False, 2),
        (True, 1),
    ]
    rows = {
        (record.step, record.session, record.name): bundle.tensor(record)
        for record in bundle.records
    }
    assert rows[0, 1, "L0_mlp_output"].tobytes() == tensors["s1.l0.mlp"][:3].tobytes()
    assert rows[0, 0, "L0_mlp_output"].tobytes() == tensors["s1.l0.mlp"][3:].tobytes()
    assert rows[0, 0, "logits"].tolist() == [[5, 6, 7, 8, 9]]
    assert rows[1, 0, "L0_mlp_output"].tobytes() == tensors["s0.l0.mlp"].tobytes()
    assert bundle.manifest.tokens == ((int(tensors["s0.token"][0]),), (7,))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("end = 3", "end = 2", "rows, and the step has"),
        ("start = 8", "start = 7", "rows, and the step has 5"),
        ("start = 8, end = 12", "start = 9, end = 13", "are 8 to 11, and the step has 9 to 12"),
        ("start = 8, end = 12", "start = 8, end = 8", "are no positions"),
        ("session = 1", "session = 0", "one span of each"),
        ("step = 0\n", "step = 1\n", "twice"),
    ],
)
def test_stated_steps_that_the_tensors_contradict(old, new, why, folder):
    tensors = tiny_run(4, 4)
    tensors["s0.pos"], tensors["s1.pos"] = np.arange(8, 12), np.array([0, 1, 2, 0])
    tensors["s1.logits"], tensors["s1.token"] = np.ones((2, 5), "f4"), np.array([7, 8])
    assert why in refused(folder, tensors, map_text(tail=STEPS.replace(old, new)))


def test_a_prompt_is_what_a_sessions_own_prefill_took_in(folder, tmp_path):
    """Session 0 generates in the step in which session 1 goes on with its prompt."""
    tensors = tiny_run(6, 3)
    tensors["s0.pos"], tensors["s1.pos"] = np.array([0, 1, 2, 3, 0, 1]), np.array([4, 2, 3])
    for step in (0, 1):
        tensors[f"s{step}.logits"] = np.ones((2, 5), "f4") * (step + 1)
        tensors[f"s{step}.token"] = np.array([10 * step + 7, 10 * step + 8])
    tail = """
[[steps]]
spans = [{ session = 0, start = 0, end = 4 }, { session = 1, start = 0, end = 2 }]
[[steps]]
spans = [
    { session = 0, start = 4, end = 5 },
    { session = 1, start = 2, end = 4 },
]
"""
    bring(save_npy(tensors, folder), tmp_path / "out", map_text(tail=tail))
    manifest = open_bundle(tmp_path / "out").manifest
    first, second = tensors["s0.ids"].tolist(), tensors["s1.ids"].tolist()
    assert manifest.prompts == (tuple(first[:4]), (*first[4:], *second[1:]))
    assert manifest.tokens == ((7, 17), (18,))


def test_a_session_in_the_name(folder, tmp_path):
    rules = {
        "L{layer}_mlp_output": 'name = "{session}.s{step}.l{layer}.mlp"',
        "logits": 'name = "{session}.s{step}.logits"',
    }
    rng = np.random.default_rng(0)
    tensors = {}
    for session, counts in ((0, (3, 1)), (1, (2, 2))):
        for step, count in enumerate(counts):
            tensors[f"{session}.s{step}.logits"] = rng.normal(size=(1, 5)).astype("f4")
            for layer in range(2):
                name = f"{session}.s{step}.l{layer}.mlp"
                tensors[name] = rng.normal(size=(count, 8)).astype("f4")
    bring(save_npy(tensors, folder), tmp_path / "out", map_text(rules))
    manifest = open_bundle(tmp_path / "out").manifest
    assert [
        [(x.session, x.start, x.end, x.phase) for x in step.spans] for step in manifest.steps
    ] == [
        [(0, 0, 3, None), (1, 0, 2, None)],
        [(0, 3, 4, "decode"), (1, 2, 4, "prefill")],
    ]


def test_a_session_beyond_all_others_is_refused(folder):
    """When the dump is opened: a line for each of very many is no reason to look at all of them."""
    rules = {"L{layer}_mlp_output": 'name = "{session}.l{layer}"'}
    path = folder.parent / "map.toml"
    path.write_text(map_text(rules))
    for session, is_known in ((9_999, True), (10_000, False)):
        source = save_npy({f"{session}.l0": np.ones((3, 8), "f4")}, folder / str(session))
        if is_known:
            assert open_dump("npy", source, read_map(path)).timeline is not None
        else:
            with pytest.raises(ForeignError, match="10,000 sessions are the most"):
                open_dump("npy", source, read_map(path))


def test_a_model_of_fewer_layers_than_the_dump_is_refused_before_anything_is_written(folder):
    why = refused(folder, tiny_run(4), map_text(header="num_layers = 2\n" + HEADER))
    assert "no bundle can be made of it" in why
    assert "the model has no layer 2" in why


def test_layers_and_their_offset(folder, tmp_path):
    rules = {
        "L{layer}_mlp_output": 'name = "s{step}.l{layer}.mlp"\nlayer_offset = 5\nlayers = [6, 7]',
    }
    bring(save_npy(tiny_run(4), folder), tmp_path / "out", map_text(rules))
    assert [record.layer for record in open_bundle(tmp_path / "out").records] == [6, 7]


def test_layers_of_two_widths_have_rules_of_their_own(folder, tmp_path):
    tensors = {name: x for name, x in tiny_run(4).items() if name.endswith(".attn")}
    body = 'name = "s{step}.l{layer}.attn"\nlayout = "T (H D)"\n'
    wide = f"""
[[points]]
point = "L{{layer}}_attention_output"
{body}
layers = [2]
sizes = {{ H = 2, D = 8 }}
"""
    text = map_text({"L{layer}_attention_output": body + "layers = [0, 1]"}, tail=wide)
    result = bring(save_npy(tensors, folder), tmp_path / "out", text)
    records = open_bundle(tmp_path / "out").records
    assert [record.shape for record in records] == [(4, 4, 4), (4, 4, 4), (4, 2, 8)]
    assert [rule.missing for rule in result.rules] == ["", ""]


def test_what_rules_of_one_point_lack_is_told_once(folder):
    tensors = tiny_run(4, 1)
    del tensors["s1.l1.mlp"]
    rules = {
        "L{layer}_o_proj": 'name = "s{step}.l{layer}.out"',
        "L{layer}_mlp_output": 'name = "s{step}.l{layer}.mlp"\nlayers = [0, 1]',
    }
    tail = """
[[points]]
point = "L{layer}_mlp_output"
name = "s{step}.l{layer}.mlp"
layers = [2]
"""
    result = check(save_npy(tensors, folder), map_text(rules, tail=tail))
    assert [rule.missing for rule in result.rules] == ["", "step 1 layer 1", ""]


def test_a_name_that_is_too_long_is_refused(folder):
    """No pattern would match it, and it would be missing unseen."""
    folder.mkdir(exist_ok=True)
    for length, why in ((MAX_NAME, None), (MAX_NAME + 1, "a name of 513 characters, 512 is")):
        name = "a" * (length - 2) + ".0"
        line = {"name": name, "dtype": "F32", "shape": [3, 8], "digest": "0" * 32}
        (folder / "x.jsonl").write_text(json.dumps(line))
        text = map_text({"L{layer}_mlp_output": 'name = "a*a.{layer}"'})
        if why is None:
            assert check(folder, text, kind="digests").num_records == 1
        else:
            with pytest.raises(ForeignError, match=why):
                check(folder, text, kind="digests")


TAGS = """
engine = "tagged"
names = "tags"
num_ranks = 2
[fields]
layer = "layer_id"
step = "pass"
[[points]]
point = "L{layer}_o_proj"
name = "o"
ranks = "E"
where = { recompute_status = "disabled" }
"""


def test_tags_say_step_layer_and_rank_and_a_rank_of_a_later_stage_counts_from_its_first(
    folder, tmp_path
):
    """Ranks 2 and 3 are the second stage: they hold the halves of its layer."""
    rng = np.random.default_rng(0)
    whole = rng.normal(size=(2, 3, 8)).astype(np.float32)
    tensors = {}
    for layer, rank in ((0, 0), (0, 1), (1, 2), (1, 3)):
        half = np.split(whole[layer], 2, axis=1)[rank % 2]
        name = f"rank={rank}___pass=7___dump_index=1___name=o___layer_id={layer}"
        tensors[f"{name}___recompute_status=disabled"] = half
        tensors[f"{name}___recompute_status=recompute"] = half + 1
    result = bring(save_npy(tensors, folder), tmp_path / "out", TAGS)
    bundle = open_bundle(tmp_path / "out")
    assert [bundle.tensor(record).tobytes() for record in bundle.records] == [
        layer.tobytes() for layer in whole
    ]
    assert bundle.manifest.case["imported"]["steps"] == [7]
    assert result.unmatched_names == (("o", 4),)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("rank=x___pass=7___name=o___layer_id=0", "the tag of rank is 'x', no number"),
        ("rank=-1___pass=7___name=o___layer_id=0", "no number"),
        ("rank=0___pass=7___name=o.l3___layer_id=0", "its name says layer 3, and its tag 0"),
    ],
)
def test_tags_that_are_no_numbers_or_contradict_the_name(name, why, folder):
    text = TAGS.replace('where = { recompute_status = "disabled" }', "").replace(
        'name = "o"', 'name = ["o", "o.l{layer}"]\njoin = "E"'
    )
    assert why in refused(folder, {name: np.ones((3, 4), np.float32)}, text)


def test_a_dump_that_changes_while_it_is_read_is_refused(folder, tmp_path):
    save_npy(tiny_run(4), folder)

    def change(what: str, done: int, total: int) -> None:
        if what.startswith("checking"):
            np.save(folder / "s0.l1.mlp.npy", np.ones((4, 8), np.float32))

    rules = read_map(write_map(tmp_path))
    with pytest.raises(ForeignError, match="changed while it was read"):
        import_dump(open_dump("npy", folder, rules), tmp_path / "out", progress=change)
    assert not (tmp_path / "out").exists()


def test_the_bundle_says_what_its_map_allowed(folder, tmp_path):
    tensors = tiny_run(4)
    tensors["s0.l1.out"] = tensors["s0.l1.mlp"]
    text = map_text(header='allow = ["delta"]\n' + HEADER)
    bring(save_npy(tensors, folder), tmp_path / "out", text)
    (allowed,) = open_bundle(tmp_path / "out").manifest.case["imported"]["allowed"]
    assert allowed.startswith("after_layer_1 of step 0 is a delta")


def test_a_map_that_is_a_pipe_or_a_folder_is_refused(tmp_path):
    os.mkfifo(tmp_path / "p.toml")
    for path in (tmp_path / "p.toml", tmp_path):
        with pytest.raises(ForeignError, match=r"not a regular file|no such map"):
            find_map(str(path))


def test_a_bundle_is_never_overwritten(folder, tmp_path):
    save_npy(tiny_run(4), folder)
    bring(folder, tmp_path / "out")
    with pytest.raises(BundleError, match="exists already"):
        bring(folder, tmp_path / "out")
    assert open_bundle(tmp_path / "out").verify()


def test_a_full_disk_leaves_nothing(folder, tmp_path, monkeypatch):
    from swarepro.bundle.write import BundleWriter

    def full(self: BundleWriter) -> None:
        raise BundleError("no space")

    monkeypatch.setattr(BundleWriter, "end_step", full)
    with pytest.raises(BundleError, match="no space"):
        bring(save_npy(tiny_run(4), folder), tmp_path / "out")
    assert not (tmp_path / "out").exists()
