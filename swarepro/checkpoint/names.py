"""The tensors of a model, as data: part, shape, and their names in each file format.

Dimensions: ``E`` hidden, ``Q`` query heads x head_dim, ``K`` kv heads x head_dim, ``D`` head_dim,
``F`` intermediate, ``V`` vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from swarepro.checkpoint.config import LayerConfig, ModelConfig


class Part(StrEnum):
    """What a tensor is, whatever file it comes from."""

    INPUT_NORM = "input_norm"
    Q = "q"
    K = "k"
    V = "v"
    Q_NORM = "q_norm"
    K_NORM = "k_norm"
    O_PROJ = "o_proj"
    POST_ATTENTION_NORM = "post_attention_norm"
    PRE_FEEDFORWARD_NORM = "pre_feedforward_norm"
    POST_FEEDFORWARD_NORM = "post_feedforward_norm"
    GATE = "gate"
    UP = "up"
    DOWN = "down"
    LAYER_SCALAR = "layer_scalar"
    EMBEDDING = "embedding"
    FINAL_NORM = "final_norm"
    HEAD = "head"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorName:
    """One row of the tables below.

    Attributes:
        hf: name in a Hugging Face checkpoint, after the layer's or the text model's prefix.
        gguf: name in a GGUF file, after ``blk.N.``; None where the format's architecture has none.
        dims: the shape, in the letters of the module docstring; ``"1"`` is one element.
        is_norm: an RMSNorm weight.
    """

    part: Part
    hf: str
    gguf: str | None
    dims: tuple[str, ...]
    is_norm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTensor:
    """A tensor that a stage needs: its name in the file and the shape it must have there.

    Attributes:
        layer: global layer id, or None for the ends of the model.
    """

    part: Part
    layer: int | None
    name: str
    shape: tuple[int, ...]
    is_norm: bool


Namer = Callable[[TensorName, int | None], str]


def _norm(part: Part, hf: str, gguf: str, dim: str = "E") -> TensorName:
    return TensorName(part=part, hf=f"{hf}.weight", gguf=gguf, dims=(dim,), is_norm=True)


def _matrix(part: Part, hf: str, gguf: str, rows: str, columns: str) -> TensorName:
    return TensorName(part=part, hf=f"{hf}.weight", gguf=gguf, dims=(rows, columns))


LAYER_TENSORS = (
    _norm(Part.INPUT_NORM, "input_layernorm", "attn_norm.weight"),
    _matrix(Part.Q, "self_attn.q_proj", "attn_q.weight", "Q", "E"),
    _matrix(Part.K, "self_attn.k_proj", "attn_k.weight", "K", "E"),
    _matrix(Part.V, "self_attn.v_proj", "attn_v.weight", "K", "E"),
    _norm(Part.Q_NORM, "self_attn.q_norm", "attn_q_norm.weight", "D"),
    _norm(Part.K_NORM, "self_attn.k_norm", "attn_k_norm.weight", "D"),
    _matrix(Part.O_PROJ, "self_attn.o_proj", "attn_output.weight", "E", "Q"),
    _norm(Part.POST_ATTENTION_NORM, "post_attention_layernorm", "post_attention_norm.weight"),
    _norm(Part.PRE_FEEDFORWARD_NORM, "pre_feedforward_layernorm", "ffn_norm.weight"),
    _norm(Part.POST_FEEDFORWARD_NORM, "post_feedforward_layernorm", "post_ffw_norm.weight"),
    _matrix(Part.GATE, "mlp.gate_proj", "ffn_gate.weight", "F", "E"),
    _matrix(Part.UP, "mlp.up_proj", "ffn_up.weight", "F", "E"),
    _matrix(Part.DOWN, "mlp.down_proj", "ffn_down.weight", "E", "F"),
    TensorName(part=Part.LAYER_SCALAR, hf="layer_scalar", gguf=None, dims=("1",)),
)
EMBEDDING = _matrix(Part.EMBEDDING, "embed_tokens", "token_embd.weight", "V", "E")
FINAL_NORM = _norm(Part.FINAL_NORM, "norm", "output_norm.weight")
HEAD = _matrix(Part.HEAD, "lm_head", "output.weight", "V", "E")


def layer_tensors(config: ModelConfig, layer: LayerConfig) -> tuple[TensorName, ...]:
    """Return the rows of `LAYER_TENSORS` that this layer has."""
    absent = set()
    if layer.k_eq_v:
        absent.add(Part.V)
    if not config.has_qk_norms:
        absent |= {Part.Q_NORM, Part.K_NORM}
    if not config.has_layer_scalar:
        absent.add(Part.LAYER_SCALAR)
    return tuple(row for row in LAYER_TENSORS if row.part not in absent)


def tensor_shape(
    row: TensorName, config: ModelConfig, layer: LayerConfig | None
) -> tuple[int, ...]:
    """Return the shape of ``row`` in this model; ``layer`` is needed for the rows of a layer."""
    sizes = {
        "1": 1,
        "E": config.hidden_size,
        "F": config.intermediate_size,
        "V": config.vocab_size,
    }
    if layer is not None:
        sizes["D"] = layer.head_dim
        sizes["Q"] = config.num_heads * layer.head_dim
        sizes["K"] = layer.num_kv_heads * layer.head_dim
    return tuple(sizes[dim] for dim in row.dims)


def stage_tensors(
    config: ModelConfig,
    layer_start: int,
    layer_end: int,
    *,
    embedding: bool,
    head: bool,
    namer: Namer,
) -> tuple[WantedTensor, ...]:
    """Return the tensors of layers ``[layer_start, layer_end)`` and of the ends that are asked for.

    A tied head needs the embedding and no head tensor; the embedding is listed once.
    """
    rows: list[tuple[TensorName, LayerConfig | None]] = [
        (row, layer)
        for layer in config.layers[layer_start:layer_end]
        for row in layer_tensors(config, layer)
    ]
    if embedding or (head and config.tied_head):
        rows.append((EMBEDDING, None))
    if head:
        rows.append((FINAL_NORM, None))
        if not config.tied_head:
            rows.append((HEAD, None))
    return tuple(
        WantedTensor(
            part=row.part,
            layer=None if layer is None else layer.layer,
            name=namer(row, None if layer is None else layer.layer),
            shape=tensor_shape(row, config, layer),
            is_norm=row.is_norm,
        )
        for row, layer in rows
    )
