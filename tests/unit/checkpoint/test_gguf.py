"""GGUF files: a tiny one of our own making in every supported type, and each way to break it."""

import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from swarepro.checkpoint import LayerKind, RopeKind, open_checkpoint
from swarepro.checkpoint.gguf_header import read_gguf_header
from swarepro.errors import CheckpointError

from .conftest import Load

gguf = pytest.importorskip("gguf", reason="the gguf extra is not installed")

E, F, V, H, K, D, LAYERS = 256, 512, 96, 2, 1, 64, 7
KEYS: dict[str, Any] = {
    "block_count": LAYERS,
    "context_length": 4096,
    "embedding_length": E,
    "feed_forward_length": F,
    "attention.head_count": H,
    "attention.head_count_kv": K,
    "attention.key_length": D,
    "attention.value_length": D,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.sliding_window": 32,
    "rope.freq_base": 1e6,
}
# One type per matrix, so that a file has them all; gguf can write the first four itself.
TYPES = {
    "attn_q": "F16",
    "attn_k": "BF16",
    "attn_v": "Q8_0",
    "attn_output": "Q5_0",
    "ffn_gate": "Q4_K",
    "ffn_up": "Q6_K",
    "ffn_down": "F32",
}
SHAPES = {
    "attn_norm": (E,),
    "attn_q": (H * D, E),
    "attn_k": (K * D, E),
    "attn_v": (K * D, E),
    "attn_q_norm": (D,),
    "attn_k_norm": (D,),
    "attn_output": (E, H * D),
    "post_attention_norm": (E,),
    "ffn_norm": (E,),
    "post_ffw_norm": (E,),
    "ffn_gate": (F, E),
    "ffn_up": (F, E),
    "ffn_down": (E, F),
}
Change = Callable[[dict[str, Any], dict[str, tuple[Any, str]]], None]


def quantised(values: Any, kind: str, rng: np.random.Generator) -> Any:
    """Raw bytes; K-quants are random blocks with a sane scale, since gguf cannot write them."""
    if kind in ("Q4_K", "Q6_K"):
        block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
        raw = rng.integers(0, 256, (values.shape[0], values.shape[1] // block, size), np.uint8)
        scale = np.frombuffer(np.float16(0.003).tobytes(), np.uint8)
        if kind == "Q4_K":
            raw[..., 0:2], raw[..., 2:4] = scale, scale
        else:
            raw[..., -2:] = scale
        return raw.reshape(values.shape[0], -1)
    return gguf.quants.quantize(values, gguf.GGMLQuantizationType[kind])


def write(
    path: Path, change: Change = lambda keys, tensors: None, architecture: str = "gemma3"
) -> Path:
    rng = np.random.default_rng(0)
    keys, tensors = dict(KEYS), dict[str, tuple[Any, str]]()
    for name, shape in [("token_embd", (V, E)), ("output_norm", (E,))]:
        tensors[f"{name}.weight"] = (rng.standard_normal(shape, np.float32), "F32")
    for layer in range(LAYERS):
        for name, shape in SHAPES.items():
            values = rng.standard_normal(shape, np.float32) + (1.0 if len(shape) == 1 else 0.0)
            tensors[f"blk.{layer}.{name}.weight"] = (values, TYPES.get(name, "F32"))
    change(keys, tensors)
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in keys.items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add.get(type(value), writer.add_array)(f"{architecture}.{key}", value)
    writer.add_array("tokenizer.ggml.tokens", [f"t{index}" for index in range(6000)])
    writer.add_array("tokenizer.ggml.scores", [0.5] * 6000)
    for name, (values, kind) in tensors.items():
        raw = quantised(values, kind, rng)
        writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def reference(path: Path) -> dict[str, torch.Tensor]:
    """Every tensor through gguf's own reader and dequantiser, fp32."""
    return {
        tensor.name: torch.from_numpy(
            np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        )
        for tensor in gguf.GGUFReader(path).tensors
    }


def test_config(tiny: Path) -> None:
    config = open_checkpoint(str(tiny)).config
    assert (config.num_layers, config.hidden_size, config.vocab_size) == (LAYERS, E, V)
    assert [layer.kind is LayerKind.FULL for layer in config.layers] == [False] * 5 + [True, False]
    assert config.rms_norm_eps == 1e-6 and config.attention_scale == D**-0.5
    assert config.norm_adds_one and config.tied_head and config.final_softcap is None
    sliding, full = config.layers[0], config.layers[5]
    assert (sliding.rope.theta, full.rope.theta) == (1e4, 1e6)
    assert (sliding.sliding_window, full.sliding_window) == (32, None)


def test_linear_scaling_is_of_the_full_layers(tmp_path: Path) -> None:
    def change(keys: dict[str, Any], tensors: Any) -> None:
        keys.update({"rope.scaling.type": "linear", "rope.scaling.factor": 8.0})
        keys["attention.sliding_window_pattern"] = 2

    config = open_checkpoint(str(write(tmp_path / "m.gguf", change))).config
    assert config.layers[0].rope.kind is RopeKind.DEFAULT
    assert (config.layers[1].rope.kind, config.layers[1].rope.factor) == (RopeKind.LINEAR, 8.0)


def test_the_27b_takes_its_scale_from_hidden_and_heads(tmp_path: Path) -> None:
    def change(keys: dict[str, Any], tensors: Any) -> None:
        keys["block_count"] = 62

    assert open_checkpoint(str(write(tmp_path / "m.gguf", change))).config.attention_scale == (
        (E // H) ** -0.5
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weights_are_those_of_gguf(tiny: Path, load: Load, dtype: torch.dtype) -> None:
    wanted = reference(tiny)
    weights = load(open_checkpoint(str(tiny)), dtype=dtype)
    for index, layer in weights.layers.items():

        def of(*names: str, index: int = index) -> torch.Tensor:
            return torch.cat([wanted[f"blk.{index}.{name}.weight"] for name in names]).to(dtype)

        def norm(name: str, index: int = index) -> torch.Tensor:
            return (wanted[f"blk.{index}.{name}.weight"] - 1.0).to(dtype)

        assert torch.equal(layer.qkv, of("attn_q", "attn_k", "attn_v"))
        assert torch.equal(layer.gate_up, of("ffn_gate", "ffn_up"))
        assert torch.equal(layer.down, of("ffn_down"))
        assert torch.equal(layer.o_proj, of("attn_output"))
        assert torch.equal(layer.input_norm, norm("attn_norm"))
        assert torch.equal(layer.q_norm, norm("attn_q_norm"))
        assert torch.equal(layer.k_norm, norm("attn_k_norm"))
        assert torch.equal(layer.post_attention_norm, norm("post_attention_norm"))
        assert torch.equal(layer.pre_feedforward_norm, norm("ffn_norm"))
        assert torch.equal(layer.post_feedforward_norm, norm("post_ffw_norm"))
        # The control: without the subtraction, the norms are others.
        assert not torch.equal(layer.input_norm, of("attn_norm"))
    assert weights.embedding is not None and weights.head is weights.embedding
    assert torch.equal(weights.embedding, wanted["token_embd.weight"].to(dtype))
    assert weights.final_norm is not None
    assert torch.equal(weights.final_norm, (wanted["output_norm.weight"] - 1.0).to(dtype))


def test_an_untied_head(tmp_path: Path, load: Load) -> None:
    head = np.full((V, E), 0.5, np.float32)
    path = write(tmp_path / "m.gguf", lambda keys, t: t.update({"output.weight": (head, "Q8_0")}))
    weights = load(open_checkpoint(str(path)), dtype=torch.float32)
    assert weights.head is not None and weights.head is not weights.embedding
    assert torch.allclose(weights.head, torch.tensor(0.5), atol=1e-3)


def test_bytes_are_counted(tiny: Path, load: Load) -> None:
    reader = gguf.GGUFReader(tiny)
    sizes = {tensor.name: int(tensor.n_bytes) for tensor in reader.tensors}
    checkpoint = open_checkpoint(f"gguf:{tiny}")
    whole = load(checkpoint)
    assert whole.bytes_read == sum(sizes.values())
    assert whole.header_bytes == reader.data_offset
    middle = load(checkpoint, 2, 4, embedding=False, head=False)
    assert middle.bytes_read == sum(
        size for name, size in sizes.items() if name.startswith(("blk.2.", "blk.3."))
    )
    last = load(checkpoint, 6, 7, embedding=False)
    assert last.bytes_read == sizes["token_embd.weight"] + sizes["output_norm.weight"] + sum(
        size for name, size in sizes.items() if name.startswith("blk.6.")
    )
    assert torch.equal(last.layers[6].down, whole.layers[6].down)


def keys_with(**changes: object) -> Change:
    return lambda keys, tensors: keys.update(
        {name.replace("__", "."): value for name, value in changes.items()}
    )


def without(key: str) -> Change:
    return lambda keys, tensors: keys.__delitem__(key)


def tensors_with(name: str, value: object) -> Change:
    return lambda keys, tensors: tensors.update({name: value})  # type: ignore[dict-item]


BAD_KEYS: list[tuple[Change, str]] = [
    (without("block_count"), "gemma3.block_count is missing"),
    (without("attention.sliding_window"), "gemma3.attention.sliding_window is missing"),
    (without("feed_forward_length"), "feed_forward_length is missing"),
    (keys_with(block_count="7"), "block_count is '7'; wanted an integer"),
    (keys_with(block_count=10**6), "block_count is 1000000; wanted at most"),
    (keys_with(attention__head_count=[2] * 7), r"head_count is \[2, 2"),
    (keys_with(attention__head_count_kv=3), "head_count_kv is 3; wanted a divisor"),
    (keys_with(attention__value_length=32), "value_length is 32; wanted the same"),
    (keys_with(attention__sliding_window_pattern=0), "sliding_window_pattern is 0"),
    (keys_with(rope__scaling__type="yarn"), "rope.scaling.type is 'yarn'"),
    (keys_with(rope__scaling__type="linear"), "rope.scaling.factor is missing"),
]


@pytest.mark.parametrize(("change", "message"), BAD_KEYS)
def test_a_bad_key_is_named(change: Change, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", change)
    with pytest.raises(CheckpointError, match=message) as caught:
        open_checkpoint(str(path))
    assert "m.gguf" in caught.value.message


Q = "blk.3.attn_q.weight"
BAD_TENSORS: list[tuple[Change, str]] = [
    (lambda keys, tensors: tensors.__delitem__(Q), f"'{Q}' is missing"),
    (tensors_with(Q, (np.ones((7, E), np.float32), "F32")), r"has shape \[7, 256\]; wanted"),
    (tensors_with(Q, (np.ones((H * D, E), np.float32), "Q4_0")), "has GGML type Q4_0; wanted"),
    (tensors_with("blk.3.ssm.weight", (np.ones(2, np.float32), "F32")), "is not part of"),
    (tensors_with("blk.9.attn_q.weight", (np.ones(2, np.float32), "F32")), "is not part of"),
    (tensors_with("rope_freqs.weight", (np.ones(2, np.float32), "F32")), "is not part of"),
]


@pytest.mark.parametrize(("change", "message"), BAD_TENSORS)
def test_a_bad_tensor_is_named(change: Change, message: str, tmp_path: Path, load: Load) -> None:
    path = write(tmp_path / "m.gguf", change)
    with pytest.raises(CheckpointError, match=message) as caught:
        load(open_checkpoint(str(path)))
    assert "m.gguf" in caught.value.message


def test_another_architecture_and_no_embedding(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", architecture="llama")
    with pytest.raises(CheckpointError, match=r"general\.architecture is 'llama'; wanted 'gemma3'"):
        open_checkpoint(str(path))
    write(path, lambda keys, tensors: tensors.__delitem__("token_embd.weight"))
    with pytest.raises(CheckpointError, match=r"'token_embd\.weight' is missing"):
        open_checkpoint(str(path))


def test_a_cut_file_is_named_wherever_it_is_cut(tiny: Path, tmp_path: Path, load: Load) -> None:
    raw = tiny.read_bytes()
    header = gguf.GGUFReader(tiny).data_offset
    path = tmp_path / "cut.gguf"
    for size in [*range(4, 300, 7), header // 2, header - 40, header, header + 9, len(raw) - 1]:
        path.write_bytes(raw[:size])
        with pytest.raises(CheckpointError, match=r"cut\.gguf is cut short"):
            load(open_checkpoint(str(path)))


@pytest.mark.parametrize("raw", [b"", b"GG", b"PK\3\4" * 20, b"GGUF" + struct.pack("<I", 9)])
def test_not_a_gguf_file(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(raw)
    with pytest.raises(CheckpointError, match=r"m\.gguf (is not a GGUF file|has GGUF version 9)"):
        open_checkpoint(str(path))


def test_flipped_header_bytes_are_no_traceback(tiny: Path, tmp_path: Path) -> None:
    raw = bytearray(tiny.read_bytes()[:4096])
    path = tmp_path / "m.gguf"
    for position in range(4, 700, 3):
        damaged = bytearray(raw)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError):
            open_checkpoint(str(path))


def test_without_the_library(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(CheckpointError, match="needs the gguf library") as caught:
        open_checkpoint(str(tiny))
    assert caught.value.hint == "pip install swarepro[gguf]"


def test_arrays_inside_arrays_are_refused(tmp_path: Path) -> None:
    """Thousands of them, each in the last, would exhaust the stack."""
    nested = struct.pack("<IQ", 9, 1) * 5000
    key = b"general.deep"
    path = tmp_path / "deep.gguf"
    path.write_bytes(
        b"GGUF"
        + struct.pack("<IQQ", 3, 0, 1)
        + struct.pack("<Q", len(key))
        + key
        + struct.pack("<I", 9)
        + nested
    )
    with pytest.raises(CheckpointError, match="a metadata value has unknown type 9"):
        read_gguf_header(path)
