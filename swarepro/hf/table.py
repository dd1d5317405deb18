"""From the modules of transformers to our points, as data: one table for each model type.

What is no module's output is taken where transformers hands it on: to its cache, to its attention
function, or into the next module. Nothing is computed again from a formula of ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from swarepro import points
from swarepro.points import CapturePoint


class Read(StrEnum):
    """What is read, and of which shape; B is 1."""

    OUTPUT = "output"  # of modules, [B, T, ...]; several are joined along their last dimension
    INPUT = "input"  # the first argument of a module, [B, T, ...]
    POSITIONS = "positions"  # the second argument of the rotary module, [B, T]
    ROTARY = "rotary"  # the query given to the attention function and the key given to the cache
    VALUE = "value"  # given to the cache, [B, K, T, D]
    CACHE = "cache"  # keys and values that the cache gave back, [B, K, C, D] each
    PREFIX = "prefix"  # how many rows the cache has before a step
    RESULT = "result"  # the logits that the model returned, [B, 1, V]
    CHOICE = "choice"  # the token that is given back to the model: the largest of these logits


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where one point comes from.

    Attributes:
        modules: paths below a layer, or below the text model for a point of no layer. One that the
            model lacks by its config (V's projection, where V is K's) is left out.
        heads_first: the module sees ``[B, H, T, D]``, not ``[B, T, H, D]``.
    """

    point: CapturePoint
    read: Read
    modules: tuple[str, ...] = ()
    heads_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleTable:
    """What a model of one type has to look like, and what is read where.

    Attributes:
        model: class of the whole model.
        ends: class by path below the model, of what is outside the layers.
        layer: class by path below a layer; the layer itself is ``""``.
        sources: every point but those of `ABSENT` in `swarepro.hf.engine`, and but the optional
            ones that the model type lacks.
    """

    model: str
    ends: Mapping[str, str]
    layer: Mapping[str, str]
    sources: tuple[Source, ...]


TEXT_MODEL = "model"
LAYERS = f"{TEXT_MODEL}.layers"
HEAD = "lm_head"
ATTENTION = "self_attn"

_SHARED = (
    Source(point=points.INPUT_IDS, read=Read.INPUT, modules=("embed_tokens",)),
    Source(point=points.POSITIONS, read=Read.POSITIONS, modules=("rotary_emb",)),
    Source(point=points.PREFIX_LEN, read=Read.PREFIX),
    Source(point=points.EMBEDDING_OUTPUT, read=Read.OUTPUT, modules=("embed_tokens",)),
    Source(point=points.INPUT_NORMED, read=Read.OUTPUT, modules=("input_layernorm",)),
    Source(
        point=points.QKV_PROJECTED,
        read=Read.OUTPUT,
        modules=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    ),
    Source(point=points.ROTARY_APPLIED, read=Read.ROTARY),
    Source(point=points.KV_SLICE_POST_WRITE, read=Read.CACHE),
    Source(point=points.ATTENTION_OUTPUT, read=Read.INPUT, modules=("self_attn.o_proj",)),
    Source(point=points.O_PROJ, read=Read.OUTPUT, modules=("self_attn.o_proj",)),
    Source(point=points.ATTN_RESIDUAL, read=Read.INPUT, modules=("pre_feedforward_layernorm",)),
    Source(point=points.MLP_GATE_UP, read=Read.OUTPUT, modules=("mlp.gate_proj", "mlp.up_proj")),
    Source(point=points.MLP_OUTPUT, read=Read.OUTPUT, modules=("mlp",)),
    Source(point=points.AFTER_LAYER, read=Read.OUTPUT, modules=("",)),
    Source(point=points.FINAL_NORM, read=Read.OUTPUT, modules=("norm",)),
    Source(point=points.LOGITS, read=Read.RESULT),
    Source(point=points.TOKEN, read=Read.CHOICE),
)
_PLAIN_VALUE = Source(point=points.V_NORMED, read=Read.VALUE)
"""V goes through no norm: what is given to the cache is the projection's own."""


def _norms(*, heads_first: bool) -> tuple[Source, ...]:
    return tuple(
        Source(
            point=point, read=Read.OUTPUT, modules=(f"self_attn.{name}",), heads_first=heads_first
        )
        for point, name in ((points.Q_NORMED, "q_norm"), (points.K_NORMED, "k_norm"))
    )


_NORMED_VALUE = Source(point=points.V_NORMED, read=Read.OUTPUT, modules=("self_attn.v_norm",))


def _table(
    prefix: str, *, text: str, norms: tuple[str, ...], sources: tuple[Source, ...]
) -> ModuleTable:
    """Return a table; names of classes begin with ``prefix``, most of the text model's so: text."""
    norm = f"{prefix}RMSNorm"
    return ModuleTable(
        model=f"{prefix}ForCausalLM",
        ends={
            TEXT_MODEL: f"{prefix}Model" if prefix == "Gemma2" else f"{prefix}TextModel",
            f"{TEXT_MODEL}.embed_tokens": f"{prefix}TextScaledWordEmbedding",
            LAYERS: "ModuleList",
            f"{TEXT_MODEL}.norm": norm,
            f"{TEXT_MODEL}.rotary_emb": f"{text}RotaryEmbedding",
            HEAD: "Linear",
        },
        layer={
            "": f"{text}DecoderLayer",
            ATTENTION: f"{text}Attention",
            **{f"self_attn.{name}_proj": "Linear" for name in ("q", "k", "v", "o")},
            **{f"self_attn.{name}": norm for name in norms},
            "mlp": f"{text}MLP",
            **{f"mlp.{name}_proj": "Linear" for name in ("gate", "up", "down")},
            "mlp.act_fn": "GELUTanh",
            "input_layernorm": norm,
            "post_attention_layernorm": norm,
            "pre_feedforward_layernorm": norm,
            "post_feedforward_layernorm": norm,
        },
        sources=(*_SHARED, *sources),
    )


TABLES: Mapping[str, ModuleTable] = {
    "gemma2": _table("Gemma2", text="Gemma2", norms=(), sources=(_PLAIN_VALUE,)),
    "gemma3_text": _table(
        "Gemma3",
        text="Gemma3",
        norms=("q_norm", "k_norm"),
        sources=(*_norms(heads_first=True), _PLAIN_VALUE),
    ),
    "gemma4_text": _table(
        "Gemma4",
        text="Gemma4Text",
        norms=("q_norm", "k_norm", "v_norm"),
        sources=(*_norms(heads_first=False), _NORMED_VALUE),
    ),
    "gemma4_unified_text": _table(
        "Gemma4Unified",
        text="Gemma4UnifiedText",
        norms=("q_norm", "k_norm", "v_norm"),
        sources=(*_norms(heads_first=False), _NORMED_VALUE),
    ),
}
"""By transformers' ``model_type``."""
