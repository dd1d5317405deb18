"""The geometries of the synthetic models, and how large their weights are drawn.

The tiny ones are shaped so that no fault can hide: hidden 96 (its square root is inexact in bf16),
head counts and sizes that differ between the KV groups, norm weights and layer scalars that are
not 1. The plain one is shaped so that many can: hidden 64, scores scaled by head_dim, norms whose
weights are 0, so that they multiply by one.
"""

import math
from collections.abc import Callable
from dataclasses import replace

from swarepro.checkpoint.config import LayerConfig, LayerKind, ModelConfig, RopeKind, RopeSpec
from swarepro.checkpoint.names import Part
from swarepro.errors import CheckpointError
from swarepro.registry import Registry

MakeConfig = Callable[[int | None], ModelConfig]
SYNTHETIC_MODELS: Registry[MakeConfig] = Registry("synthetic model", error=CheckpointError)

_LOCAL_ROPE = RopeSpec(kind=RopeKind.DEFAULT, theta=10_000.0)
_GEMMA4_ROPE = RopeSpec(kind=RopeKind.PROPORTIONAL, theta=1_000_000.0, partial_rotary_factor=0.25)
_GEMMA3_ROPE = RopeSpec(kind=RopeKind.LINEAR, theta=1_000_000.0, factor=8.0)
_PATTERN = 6  # five sliding layers, one full; Gemma 2 alternates


def _gemma4(
    *,
    model_type: str,
    num_layers: int,
    hidden_size: int,
    intermediate_size: int,
    num_heads: int,
    sliding: tuple[int, int],
    full: tuple[int, int],
    sliding_window: int,
    vocab_size: int,
    max_position_embeddings: int,
) -> ModelConfig:
    """``sliding`` and ``full`` are (kv heads, head_dim). The last layer is full, as it must be."""
    layers = []
    for index in range(num_layers):
        is_full = (index + 1) % _PATTERN == 0 or index == num_layers - 1
        num_kv_heads, head_dim = full if is_full else sliding
        layers.append(
            LayerConfig(
                layer=index,
                kind=LayerKind.FULL if is_full else LayerKind.SLIDING,
                num_kv_heads=num_kv_heads,
                head_dim=head_dim,
                sliding_window=None if is_full else sliding_window,
                rope=_GEMMA4_ROPE if is_full else _LOCAL_ROPE,
                k_eq_v=is_full,
            )
        )
    return ModelConfig(
        model_type=model_type,
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_heads=num_heads,
        layers=tuple(layers),
        rms_norm_eps=1e-6,
        norm_adds_one=False,
        has_qk_norms=True,
        has_v_norm=True,
        has_layer_scalar=True,
        attention_scale=1.0,
        attention_softcap=None,
        final_softcap=30.0,
        embed_scale=hidden_size**0.5,
        tied_head=True,
        max_position_embeddings=max_position_embeddings,
    )


def _gemma4_tiny(num_layers: int | None) -> ModelConfig:
    return _gemma4(
        model_type="gemma4_text",
        num_layers=num_layers or 12,
        hidden_size=96,
        intermediate_size=192,
        num_heads=4,
        sliding=(2, 16),
        full=(1, 32),
        sliding_window=32,
        vocab_size=512,
        max_position_embeddings=32_768,
    )


def _gemma4_12b(num_layers: int | None) -> ModelConfig:
    return _gemma4(
        model_type="gemma4_unified_text",
        num_layers=num_layers or 48,
        hidden_size=3840,
        intermediate_size=15_360,
        num_heads=16,
        sliding=(8, 256),
        full=(1, 512),
        sliding_window=1024,
        vocab_size=262_144,
        max_position_embeddings=262_144,
    )


def _gemma23_tiny(
    num_layers: int,
    *,
    model_type: str,
    pattern: int,
    full_rope: RopeSpec,
    has_qk_norms: bool,
    attention_softcap: float | None,
    final_softcap: float | None,
) -> ModelConfig:
    kinds = [
        LayerKind.SLIDING if (index + 1) % pattern else LayerKind.FULL
        for index in range(num_layers)
    ]
    return ModelConfig(
        model_type=model_type,
        vocab_size=512,
        hidden_size=96,
        intermediate_size=192,
        num_heads=4,
        layers=tuple(
            LayerConfig(
                layer=index,
                kind=kind,
                num_kv_heads=2,
                head_dim=16,
                sliding_window=32 if kind is LayerKind.SLIDING else None,
                rope=_LOCAL_ROPE if kind is LayerKind.SLIDING else full_rope,
                k_eq_v=False,
            )
            for index, kind in enumerate(kinds)
        ),
        rms_norm_eps=1e-6,
        norm_adds_one=True,
        has_qk_norms=has_qk_norms,
        has_v_norm=False,
        has_layer_scalar=False,
        attention_scale=24**-0.5,
        attention_softcap=attention_softcap,
        final_softcap=final_softcap,
        embed_scale=96**0.5,
        tied_head=True,
        max_position_embeddings=32_768,
    )


def _gemma3_tiny(num_layers: int | None) -> ModelConfig:
    return _gemma23_tiny(
        num_layers or 12,
        model_type="gemma3_text",
        pattern=_PATTERN,
        full_rope=_GEMMA3_ROPE,
        has_qk_norms=True,
        attention_softcap=None,
        final_softcap=None,
    )


def _gemma2_tiny(num_layers: int | None) -> ModelConfig:
    return _gemma23_tiny(
        num_layers or 12,
        model_type="gemma2",
        pattern=2,
        full_rope=_LOCAL_ROPE,
        has_qk_norms=False,
        attention_softcap=50.0,
        final_softcap=30.0,
    )


def _gemma3_plain(num_layers: int | None) -> ModelConfig:
    return replace(
        _gemma3_tiny(num_layers),
        hidden_size=64,
        intermediate_size=128,
        attention_scale=16**-0.5,
        embed_scale=8.0,
    )


SYNTHETIC_MODELS.register("gemma4-tiny", _gemma4_tiny)
SYNTHETIC_MODELS.register("gemma3-tiny", _gemma3_tiny)
SYNTHETIC_MODELS.register("gemma2-tiny", _gemma2_tiny)
SYNTHETIC_MODELS.register("gemma3-plain", _gemma3_plain)
SYNTHETIC_MODELS.register("gemma-4-12b", _gemma4_12b)
PLAIN_MODELS = frozenset({"gemma3-plain"})
"""Models whose norms multiply by one."""

# Attention scores of about this deviation are neither uniform nor one-hot.
_SCORE_DEVIATION = 2.0
# Where scores are capped they have to come near the cap. With the deviation above, a softcap of 50
# moves layer 0's attention output by 4e-3, less than bf16's rounding does; with this one by 4e-2.
# Such sharp attention amplifies rounding from layer to layer: its branch is small, to bound that.
_CAPPED_SCORE_DEVIATION = 12.0
_CAPPED_POST_ATTENTION_GAIN = 0.1
# Factors after each RMSNorm: the branches together outweigh the embedding.
_NORM_GAINS = {
    Part.INPUT_NORM: 1.0,
    Part.POST_ATTENTION_NORM: 1.0,
    Part.PRE_FEEDFORWARD_NORM: 1.0,
    Part.POST_FEEDFORWARD_NORM: 0.8,
}
_NORMS = (*_NORM_GAINS, Part.Q_NORM, Part.K_NORM, Part.FINAL_NORM)
# The final norm's weights have both signs: a tied head would otherwise favour the token that was
# just read, and greedy decoding would stand still. Their size makes a softcap of 30 matter.
_FINAL_NORM_DEVIATION = 3.0


def weight_distribution(
    config: ModelConfig, part: Part, shape: tuple[int, ...], *, plain: bool
) -> tuple[float, float]:
    """Return mean and standard deviation of a part's weights, for activations of about 1.

    Args:
        config: of the model.
        part: which weights.
        shape: theirs.
        plain: norms multiply by one.
    """
    if plain and part in _NORMS:
        return (0.0 if config.norm_adds_one else 1.0), 0.0
    if part is Part.LAYER_SCALAR:
        return 0.9, 0.05
    if part is Part.FINAL_NORM:
        return (-1.0 if config.norm_adds_one else 0.0), _FINAL_NORM_DEVIATION
    if part in (Part.Q_NORM, Part.K_NORM):
        # q . k over D values of unit variance has deviation sqrt(D), times both norms' gains.
        gain = math.sqrt(_SCORE_DEVIATION / (config.attention_scale * math.sqrt(shape[0])))
    elif part in (Part.Q, Part.K) and not config.has_qk_norms:
        # As above; the gain is in the projections. The hidden rows have about unit variance.
        head_dim = config.layers[0].head_dim
        gain = math.sqrt(_CAPPED_SCORE_DEVIATION / (config.attention_scale * math.sqrt(head_dim)))
        return 0.0, gain / math.sqrt(shape[-1])
    elif part is Part.POST_ATTENTION_NORM and not config.has_qk_norms:
        gain = _CAPPED_POST_ATTENTION_GAIN
    elif part in _NORM_GAINS:
        gain = _NORM_GAINS[part]
    else:
        return 0.0, 1.0 / math.sqrt(shape[-1])
    return (gain - 1.0, 0.3) if config.norm_adds_one else (gain, 0.25 * gain)
