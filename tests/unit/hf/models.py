"""Tiny models of every type that there is a table for, and a run of each."""

from pathlib import Path
from typing import Any

from swarepro import api
from swarepro.case import CaseSpec, PromptSpec, SessionSpec
from swarepro.checkpoint import ModelConfig, parse_hf_config
from swarepro.hf.table import TABLES, ModuleTable

TOKENS = tuple((37 * i * i + 11 * i + 5) % 500 for i in range(40))
TYPES = {
    "gemma2": {},
    "gemma3_text": {},
    "gemma4_text": {"hidden_size_per_layer_input": 0},
    "gemma4_unified_text": {},
}
_SHAPES = {
    "vocab_size": 64,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "sliding_window": 16,
}
_GEMMA4 = {"global_head_dim": 16, "num_global_key_value_heads": 1, "attention_k_eq_v": True}


def random_model(model_type: str) -> tuple[Any, ModuleTable, ModelConfig]:
    """Return a random model of transformers, its table, and our reading of its config."""
    import transformers

    fields = {**_SHAPES, **TYPES[model_type]}
    if model_type.startswith("gemma4"):
        fields |= _GEMMA4
    config = transformers.AutoConfig.for_model(model_type, **fields)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    ours = parse_hf_config({"model_type": model_type, **fields}, source="config.json")
    return model.eval(), TABLES[model_type], ours


def case(model: str, *, chunks: tuple[int, ...], decode: int, dtype: str = "fp32") -> CaseSpec:
    """Return a case of one session over the first of `TOKENS`."""
    prompt = PromptSpec(tokens=TOKENS[: sum(chunks)])
    return CaseSpec(
        name="parity",
        model=f"synthetic:{model}",
        dtype=dtype,
        capacity=64,
        sessions=(SessionSpec(prompt=prompt, chunks=chunks, decode=decode),),
    )


def pair(spec: CaseSpec, folder: Path, **ours: Any) -> tuple[Path, Path]:
    """Return the bundles of ``spec`` through transformers, and through our runtime."""
    theirs = api.capture_hf(spec, out=folder, run_id="hf").bundle
    return theirs, api.run_case(spec, out=folder, run_id="ours", **ours).bundle
