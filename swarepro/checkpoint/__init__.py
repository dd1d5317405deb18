"""Weights and model configs: Hugging Face directories, GGUF files, synthetic models."""

from swarepro.checkpoint.config import LayerConfig, LayerKind, ModelConfig, RopeKind, RopeSpec
from swarepro.checkpoint.contract import Checkpoint, Notify, Tokenizer
from swarepro.checkpoint.hf_config import parse_hf_config
from swarepro.checkpoint.sources import open_checkpoint
from swarepro.checkpoint.synth_write import write_synthetic
from swarepro.checkpoint.synthetic_models import SYNTHETIC_MODELS
from swarepro.checkpoint.weights import LayerWeights, StageWeights

__all__ = [
    "SYNTHETIC_MODELS",
    "Checkpoint",
    "LayerConfig",
    "LayerKind",
    "LayerWeights",
    "ModelConfig",
    "Notify",
    "RopeKind",
    "RopeSpec",
    "StageWeights",
    "Tokenizer",
    "open_checkpoint",
    "parse_hf_config",
    "write_synthetic",
]
