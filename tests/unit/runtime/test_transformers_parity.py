"""The runtime against transformers on the same weights and tokens, in float32.

Tolerance: relative L2 of the logits at most 5e-5. Both sides compute in float32 with other row
counts and other orders of summation; one wrong key gives more than 1e-2 (see the control).
"""

import importlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from swarepro import api
from swarepro.bundle.read import open_bundle
from swarepro.case import CaseSpec, PromptSpec, SessionSpec
from swarepro.options import CaptureOptions, RunOptions

transformers = pytest.importorskip("transformers")

LIMIT = 5e-5
TOKENS = tuple((37 * i * i + 11 * i + 5) % 128 for i in range(67))
SHAPES = {
    "vocab_size": 128,
    "hidden_size": 96,
    "intermediate_size": 192,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "sliding_window": 32,
    "max_position_embeddings": 256,
    "initializer_range": 0.1,
}


def make_model(kind: str):
    """Random weights; norms and layer scalars that are not 1."""
    torch.manual_seed(0)
    if kind == "gemma2":
        config = transformers.Gemma2Config(
            **SHAPES, query_pre_attn_scalar=24, attn_implementation="eager"
        )
        model = transformers.Gemma2ForCausalLM(config)
    elif kind == "gemma3":
        config = transformers.Gemma3TextConfig(
            **SHAPES,
            query_pre_attn_scalar=24,
            rope_scaling={"rope_type": "linear", "factor": 8.0},
        )
        model = transformers.Gemma3ForCausalLM(config)
    else:
        config = transformers.Gemma4TextConfig(
            **SHAPES,
            global_head_dim=32,
            num_global_key_value_heads=1,
            attention_k_eq_v=True,
            hidden_size_per_layer_input=0,
            final_logit_softcapping=30.0,
        )
        model = transformers.Gemma4ForCausalLM(config)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if "norm" in name:
                tensor.add_(torch.randn_like(tensor) * 0.3)
            if "layer_scalar" in name:
                tensor.fill_(0.8 + 0.3 * float(torch.rand(1)))
            if kind == "gemma2" and ("q_proj" in name or "k_proj" in name):
                tensor.mul_(3.5)  # scores near the softcap: else it would not matter
    return model.eval()


@pytest.fixture(scope="module", params=["gemma2", "gemma3", "gemma4"])
def reference(request, tmp_path_factory):
    model = make_model(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    model.save_pretrained(folder)
    return model, folder


def run_bundle(
    folder: Path,
    out: Path,
    *,
    chunks,
    stages=None,
    decode=0,
    faults=(),
    options=None,
    dtype="fp32",
    images=(),
):
    prompt = PromptSpec(tokens=TOKENS)
    case = CaseSpec(
        name="parity",
        model=str(folder),
        dtype=dtype,
        stages=stages,
        capacity=128,
        sessions=(SessionSpec(prompt=prompt, chunks=chunks, decode=decode, images=images),),
    )
    result = api.run_case(case, out=out, options=options or RunOptions(faults=faults))
    return open_bundle(result.bundle)


def logits_of(bundle):
    return {
        record.row_start: torch.from_numpy(bundle.tensor(record).copy()).view(torch.float32)[0]
        for record in bundle.records
        if record.name == "logits"
    }


def errors(bundle, model, *, images=()) -> dict[int, float]:
    """Relative L2 of every step's last row against one forward pass over all tokens."""
    ids = torch.tensor([[*TOKENS, *bundle.manifest.tokens[0][:-1]]])
    with torch.inference_mode():
        mask = image_masks(model, ids, images) if images else None
        expected = model(ids, attention_mask=mask).logits[0]
    return {
        row: float((found - expected[row]).norm() / expected[row].norm())
        for row, found in logits_of(bundle).items()
    }


def image_masks(model, ids, images):
    """The masks that transformers' own vision models make of their images, by layer kind."""
    module = importlib.import_module(type(model).__module__)
    blocks = torch.full_like(ids, -1)
    for number, (start, end) in enumerate(images):
        blocks[0, start:end] = number
    return module.create_masks_for_vision_model(
        model.config,
        inputs_embeds=model.get_input_embeddings()(ids),
        attention_mask=None,
        cache=None,
        position_ids=None,
        block_sequence_ids=blocks,
    )


@pytest.mark.parametrize("stages", [None, "0:4,4:8,8:12"])
@pytest.mark.parametrize("chunks", [(67,), (64, 3), (32, 21, 14)], ids=str)
def test_logits_of_every_step(reference, tmp_path, chunks, stages):
    model, folder = reference
    bundle = run_bundle(folder, tmp_path, chunks=chunks, stages=stages, decode=4)
    found = errors(bundle, model)
    assert len(found) == len(chunks) + 4
    assert max(found.values()) <= LIMIT, found
    assert len(bundle.manifest.tokens[0]) == 5


def test_the_limit_sees_the_founding_defect(reference, tmp_path):
    model, folder = reference
    bundle = run_bundle(folder, tmp_path, chunks=(64, 3), faults=("skip-swa-allocation",))
    found = errors(bundle, model)
    assert found[63] <= LIMIT
    assert found[66] > 1e-2


IMAGES = ((3, 7), (20, 60))
"""One shorter than the window of 32, and one longer."""


@pytest.mark.parametrize(
    ("reference", "route"),
    [
        *(("gemma3", "eager"), ("gemma3", "eager-paged"), ("gemma3", "triton-split")),
        *(("gemma4", "eager"), ("gemma4", "eager-paged"), ("gemma4", "triton-paged")),
    ],
    indirect=["reference"],
)
def test_images_are_seen_as_transformers_sees_them(reference, tmp_path, route):
    model, folder = reference
    options = RunOptions(route=route)
    bundle = run_bundle(
        folder, tmp_path, chunks=(3, 5, 59), decode=1, images=IMAGES, options=options
    )
    found = errors(bundle, model, images=IMAGES)
    assert max(found.values()) <= LIMIT, found


@pytest.mark.parametrize(
    ("reference", "fault"),
    [
        ("gemma3", "image-sees-causally"),
        ("gemma3", "long-image-sees-causally"),
        ("gemma3", "image-cut-at-chunk-edge"),
        ("gemma4", "image-sees-causally"),
        ("gemma4", "image-in-full-layers"),
    ],
    indirect=["reference"],
)
def test_the_limit_sees_what_is_wrong_with_an_image(reference, tmp_path, fault):
    model, folder = reference
    bundle = run_bundle(folder, tmp_path, chunks=(67,), images=IMAGES, faults=(fault,))
    assert max(errors(bundle, model, images=IMAGES).values()) > 1e-3


def changed_config(folder: Path, changed: Path, **fields) -> Path:
    """The same weights with other fields in config.json."""
    changed.mkdir()
    for path in folder.iterdir():
        (changed / path.name).write_bytes(path.read_bytes())
    config = json.loads((changed / "config.json").read_text())
    (changed / "config.json").write_text(json.dumps(config | fields))
    return changed


@pytest.mark.parametrize("delta", [-1, 1])
def test_the_limit_sees_a_window_that_is_off_by_one(reference, tmp_path, delta):
    """The same weights, with a window that is one key shorter or longer in config.json."""
    model, folder = reference
    window = json.loads((folder / "config.json").read_text())["sliding_window"]
    changed = changed_config(folder, tmp_path / "model", sliding_window=window + delta)
    found = errors(run_bundle(changed, tmp_path / "out", chunks=(64, 3)), model)
    assert min(found.values()) > 1e-3


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("attn_logit_softcapping", None),
        ("final_logit_softcapping", None),
        ("query_pre_attn_scalar", 16),
        ("layer_types", ["full_attention", "sliding_attention"] * 6),
    ],
    ids=str,
)
@pytest.mark.parametrize("reference", ["gemma2"], indirect=True)
def test_the_limit_sees_what_gemma_2_is_about(reference, tmp_path, field, value):
    """A softcap dropped, the scale from head_dim, or the other half of the layers slides."""
    model, folder = reference
    changed = changed_config(folder, tmp_path / "model", **{field: value})
    found = errors(run_bundle(changed, tmp_path / "out", chunks=(64, 3)), model)
    assert min(found.values()) > 1e-3, found


def test_greedy_decode_is_transformers_generate(reference, tmp_path):
    model, folder = reference
    bundle = run_bundle(folder, tmp_path, chunks=(64, 3), decode=15)
    with torch.inference_mode():
        generated = model.generate(
            torch.tensor([TOKENS]), max_new_tokens=16, do_sample=False, eos_token_id=-1
        )
    assert bundle.manifest.tokens[0] == tuple(generated[0, len(TOKENS) :].tolist())


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_three_stages_give_the_bytes_of_one(reference, tmp_path, dtype):
    _, folder = reference
    options = RunOptions(capture=CaptureOptions(store="digest"))
    fields = {"chunks": (64, 3), "decode": 2, "dtype": dtype}
    one = run_bundle(folder, tmp_path / "1", **fields, options=options)
    three = run_bundle(folder, tmp_path / "3", **fields, stages="0:4,4:8,8:12", options=options)
    result = api.diff_runs(one.path, three.path)
    assert result.verdict == "IDENTICAL"
    assert not result.only_baseline
    assert {point.name for point in result.only_target} >= {
        "boundary_send_hidden",
        "boundary_recv_hidden",
    }
    broken = replace(options, faults=("skip-swa-allocation",))
    other = run_bundle(folder, tmp_path / "x", **fields, stages="0:4,4:8,8:12", options=broken)
    assert api.diff_runs(one.path, other.path).verdict == "DIVERGED"


def test_chunked_against_single_shot_by_position(reference, tmp_path):
    """64 + 3 against 67 in float32: relative L2 at most 5e-5 at every aligned boundary."""
    from swarepro.compare.types import Tolerance

    _, folder = reference
    single = run_bundle(folder, tmp_path / "single", chunks=(67,))
    chunked = run_bundle(folder, tmp_path / "chunked", chunks=(64, 3))
    result = api.diff_runs(
        single.path, chunked.path, align="position", tolerance=Tolerance(atol=1e-3, rtol=1e-3)
    )
    assert result.verdict == "WITHIN_TOLERANCE"
    numbers = {b.name: b.numbers for b in result.boundaries if b.numbers is not None}
    assert "logits" in numbers
    assert max(diff.relative_l2 or 0.0 for diff in numbers.values()) <= LIMIT
    wrong = run_bundle(folder, tmp_path / "wrong", chunks=(64, 3), faults=("skip-swa-allocation",))
    broken = api.diff_runs(
        single.path, wrong.path, align="position", tolerance=Tolerance(atol=1e-3, rtol=1e-3)
    )
    assert broken.verdict == "DIVERGED"
