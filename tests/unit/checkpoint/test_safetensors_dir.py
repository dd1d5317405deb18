"""A Hugging Face directory: a stage reads its own bytes only, and every defect has a name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from swarepro.checkpoint import StageWeights, open_checkpoint, write_synthetic
from swarepro.errors import CheckpointError

from .conftest import EditJson, Load

INDEX = "model.safetensors.index.json"
SHARD = "model-00002-of-00003.safetensors"


def tensors_of(weights: StageWeights) -> dict[str, torch.Tensor]:
    found = {
        f"{layer}.{field}": value
        for layer, part in weights.layers.items()
        for field in part.__slots__
        if (value := getattr(part, field)) is not None
    }
    ends = {"embedding": weights.embedding, "norm": weights.final_norm, "head": weights.head}
    return {**found, **{name: value for name, value in ends.items() if value is not None}}


def num_bytes(weights: StageWeights) -> int:
    unique = {value.data_ptr(): value for value in tensors_of(weights).values()}
    return sum(value.nbytes for value in unique.values())


def test_three_stages_are_slices_of_one(sharded: Path, load: Load) -> None:
    checkpoint = open_checkpoint(str(sharded))
    whole = load(checkpoint)
    stages = [
        load(checkpoint, 0, 2, head=False),
        load(checkpoint, 2, 4, embedding=False, head=False),
        load(checkpoint, 4, 6, embedding=False),
    ]
    assert [sorted(stage.layers) for stage in stages] == [[0, 1], [2, 3], [4, 5]]
    wanted = tensors_of(whole)
    for stage in stages:
        for name, value in tensors_of(stage).items():
            assert torch.equal(value, wanted.pop(name) if name != "head" else wanted[name])
    assert set(wanted) == {"head"}
    assert stages[2].embedding is None and stages[1].final_norm is None


def test_a_stage_reads_its_own_bytes_and_headers(sharded: Path, load: Load) -> None:
    checkpoint = open_checkpoint(str(sharded))
    sizes = {path.name: path.stat().st_size for path in sharded.iterdir()}
    whole = load(checkpoint)
    assert whole.bytes_read == num_bytes(whole)
    assert whole.bytes_read + whole.header_bytes == sum(sizes.values())
    middle = load(checkpoint, 2, 4, embedding=False, head=False)
    assert middle.bytes_read == num_bytes(middle) < whole.bytes_read / 2
    # The control: the middle stage does without the shards that hold none of its tensors.
    assert middle.header_bytes < whole.header_bytes


def test_files_of_other_stages_are_not_opened(sharded: Path, load: Load) -> None:
    (sharded / "model-00003-of-00003.safetensors").unlink()
    checkpoint = open_checkpoint(str(sharded))
    load(checkpoint, 0, 1, embedding=False, head=False)
    with pytest.raises(CheckpointError, match=r"model-00003-of-00003.safetensors is missing"):
        load(checkpoint)


def test_tied_and_both_ends_is_one_tensor_read_once(single: Path, load: Load) -> None:
    checkpoint = open_checkpoint(str(single))
    both = load(checkpoint)
    assert both.head is both.embedding
    last = load(checkpoint, 5, 6, embedding=False)
    assert last.embedding is None and last.head is not None
    assert both.embedding is not None and torch.equal(last.head, both.embedding)
    first = load(checkpoint, 0, 1, head=False)
    assert first.head is None and first.final_norm is None


def test_weights_own_aligned_contiguous_memory(single: Path, load: Load) -> None:
    weights = load(open_checkpoint(str(single)))
    for value in tensors_of(weights).values():
        assert value.is_contiguous() and value.data_ptr() % 64 == 0
    path = single / "model.safetensors"
    before = {name: value.clone() for name, value in tensors_of(weights).items()}
    path.write_bytes(b"\0" * path.stat().st_size)
    assert all(torch.equal(value, before[name]) for name, value in tensors_of(weights).items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_dtype_is_converted(single: Path, load: Load, dtype: torch.dtype) -> None:
    checkpoint = open_checkpoint(str(single))
    for name, value in tensors_of(load(checkpoint, dtype=dtype)).items():
        assert value.dtype is dtype
        assert torch.equal(value, tensors_of(load(checkpoint))[name].to(dtype))


def change_tensor(directory: Path, name: str, change: Callable[[torch.Tensor], Any]) -> None:
    """Replace one tensor of a single-file checkpoint; None removes it."""
    path = directory / "model.safetensors"
    tensors = load_file(path)
    value = change(tensors.pop(name, torch.empty(0)))
    save_file(tensors if value is None else {**tensors, name: value}, path)


DOWN = "model.layers.3.mlp.down_proj.weight"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (DOWN, lambda t: None, f"'{DOWN}' is missing; wanted shape \\[96, 192\\]"),
        (DOWN, lambda t: t[:, :100].clone(), r"has shape \[96, 100\]; wanted \[96, 192\]"),
        (DOWN, lambda t: t.T.contiguous(), r"has shape \[192, 96\]; wanted \[96, 192\]"),
        (DOWN, lambda t: t.to(torch.int8), "has dtype I8; wanted one of BF16, F16, F32"),
        (DOWN, lambda t: t.to(torch.float64), "has dtype F64"),
        ("model.layers.3.mlp.gate.weight", lambda t: torch.ones(2), "is not part of the model"),
        ("model.layers.6.layer_scalar", lambda t: torch.ones(1), "is not part of the model"),
        ("model.layers.3.layer_scalar", lambda t: torch.ones(1), "is not part of the model"),
        ("model.other.weight", lambda t: torch.ones(1), "'model.other.weight' is not part of"),
        ("lm_head.weight", lambda t: torch.ones(512, 96), "differs from 'model.embed_tokens"),
        ("lm_head.weight", lambda t: torch.ones(96, 512), r"has shape \[96, 512\]"),
    ],
)
def test_a_wrong_tensor_is_named(
    single: Path, load: Load, name: str, change: Callable[[torch.Tensor], Any], message: str
) -> None:
    checkpoint = open_checkpoint(str(single))
    load(checkpoint)
    change_tensor(single, name, change)
    with pytest.raises(CheckpointError, match=message) as caught:
        load(checkpoint)
    assert "model.safetensors: " in caught.value.message
    assert name in caught.value.message


def test_a_wrong_tensor_of_another_stage_is_not_looked_at(single: Path, load: Load) -> None:
    change_tensor(single, DOWN, lambda tensor: None)
    load(open_checkpoint(str(single)), 4, 6)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model.layers.3.self_attn.rotary_emb.inv_freq", torch.ones(8)),
        ("model.rotary_emb.full_attention_inv_freq", torch.ones(8)),
        ("vision_tower.encoder.layers.3.mlp.fc1.weight", torch.ones(8)),
        ("multi_modal_projector.mm_input_projection_weight", torch.ones(8)),
    ],
)
def test_harmless_tensors_are_accepted(
    single: Path, load: Load, name: str, value: torch.Tensor
) -> None:
    change_tensor(single, name, lambda tensor: value)
    load(open_checkpoint(str(single)))


def test_a_head_equal_to_its_embedding_is_accepted(single: Path, load: Load) -> None:
    table = load_file(single / "model.safetensors")["model.embed_tokens.weight"]
    before = load(open_checkpoint(str(single))).bytes_read
    change_tensor(single, "lm_head.weight", lambda tensor: table)
    weights = load(open_checkpoint(str(single)))
    assert weights.head is weights.embedding
    assert weights.bytes_read == before + table.nbytes


def test_a_value_beyond_fp16_is_named(tmp_path: Path, load: Load) -> None:
    directory = write_synthetic("gemma3-tiny?layers=4", tmp_path / "m", dtype="fp32")
    change_tensor(directory, DOWN, lambda tensor: tensor.index_fill(0, torch.tensor(0), 1e5))
    checkpoint = open_checkpoint(str(directory))
    load(checkpoint, dtype=torch.bfloat16)
    with pytest.raises(CheckpointError, match=f"{DOWN}: its largest value, 100000, does not fit"):
        load(checkpoint, dtype=torch.float16)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda raw: raw[:-100], "is cut short: .* bytes; wanted"),
        (lambda raw: raw[:200], "is cut short inside its header"),
        (lambda raw: raw[:5], "is cut short: 5 bytes"),
        (lambda raw: b"", "is cut short: 0 bytes"),
        (lambda raw: raw + b"x", "is longer than its header says"),
        (lambda raw: b"\xff" * 8 + raw[8:], "is not a safetensors file"),
        (lambda raw: raw[:8] + b"?" + raw[9:], "has a corrupt header"),
    ],
)
def test_a_damaged_shard_is_named(
    sharded: Path, load: Load, damage: Callable[[bytes], bytes], message: str
) -> None:
    path = sharded / SHARD
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError, match=f"{SHARD} {message}") as caught:
        load(open_checkpoint(str(sharded)))
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"dtype": "BF16", "shape": [96], "data_offsets": [8, 0]}, "has a corrupt header"),
        ({"dtype": "BF16", "shape": [-96], "data_offsets": [0, 192]}, "has a corrupt header"),
        ({"dtype": "F32", "shape": [96], "data_offsets": [0, 192]}, "has 192 bytes; wanted 384"),
        (7, "has a corrupt header"),
    ],
)
def test_a_header_that_lies_is_named(
    sharded: Path, load: Load, edit_header: EditJson, entry: object, message: str
) -> None:
    name = "model.layers.3.input_layernorm.weight"
    edit_header(sharded / SHARD, lambda header: header.update({name: entry}))
    with pytest.raises(CheckpointError, match=message) as caught:
        load(open_checkpoint(str(sharded)))
    assert SHARD in caught.value.message and name in caught.value.message


def test_a_tensor_absent_from_the_shard_that_the_index_names(
    sharded: Path, load: Load, edit_json: EditJson
) -> None:
    name = "model.layers.0.mlp.down_proj.weight"
    edit_json(sharded / INDEX, lambda index: index["weight_map"].update({name: SHARD}))
    with pytest.raises(CheckpointError, match=f"{SHARD}: tensor '{name}' is not in this file"):
        load(open_checkpoint(str(sharded)))


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("../model.safetensors", "outside the checkpoint's directory"),
        ("/etc/passwd", "outside the checkpoint's directory"),
        ("a/../../b", "outside the checkpoint's directory"),
        ("gone.safetensors", "gone.safetensors is missing"),
        (3, "is in 3; wanted a file name"),
    ],
)
def test_an_index_that_points_nowhere_good(
    sharded: Path, load: Load, edit_json: EditJson, file: object, message: str
) -> None:
    name = "model.layers.0.mlp.down_proj.weight"
    edit_json(sharded / INDEX, lambda index: index["weight_map"].update({name: file}))
    with pytest.raises(CheckpointError, match=message):
        load(open_checkpoint(str(sharded)))


@pytest.mark.parametrize("text", ["", "[]", "{", '{"weight_map": []}', "\xff", "[" * 100_000])
def test_an_index_that_is_no_index(sharded: Path, load: Load, text: str) -> None:
    (sharded / INDEX).write_text(text, encoding="latin-1")
    with pytest.raises(CheckpointError, match=INDEX):
        load(open_checkpoint(str(sharded)))


@pytest.mark.parametrize("text", ["", "[]", "{", "\xff"])
def test_a_config_that_is_no_config(single: Path, text: str) -> None:
    (single / "config.json").write_text(text, encoding="latin-1")
    with pytest.raises(CheckpointError, match=r"config\.json"):
        open_checkpoint(str(single))


def test_no_weights_and_no_text_model(single: Path, load: Load) -> None:
    save_file({"encoder.layers.0.x": torch.ones(1)}, single / "model.safetensors")
    with pytest.raises(CheckpointError, match="no text model among its 1 tensors"):
        load(open_checkpoint(str(single)))
    (single / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="no weights; wanted"):
        load(open_checkpoint(str(single)))


def test_two_text_models(single: Path, load: Load) -> None:
    change_tensor(single, "language_model.model.layers.0.x", lambda tensor: torch.ones(1))
    with pytest.raises(CheckpointError, match="more than one text model"):
        load(open_checkpoint(str(single)))


@pytest.mark.parametrize("layers", [(0, 7), (3, 3), (-1, 2), (4, 2)])
def test_layers_outside_the_model(single: Path, load: Load, layers: tuple[int, int]) -> None:
    with pytest.raises(CheckpointError, match="are not a range inside the model's 6"):
        load(open_checkpoint(str(single)), *layers)
