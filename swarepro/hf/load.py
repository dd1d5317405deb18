"""Loads a checkpoint into transformers: from this machine, with no code of the checkpoint's own."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from importlib import import_module
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from swarepro.checkpoint.contract import Checkpoint
from swarepro.checkpoint.gguf_file import GgufCheckpoint
from swarepro.checkpoint.safetensors_dir import HuggingFaceDirectory
from swarepro.checkpoint.synth_write import write_synthetic
from swarepro.errors import EngineError
from swarepro.hf.check import check_model
from swarepro.hf.table import TABLES, ModuleTable
from swarepro.options import HfAttention

_SHOWN = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class HfModel:
    """A model of transformers that is as its table says.

    Attributes:
        model: the module, in evaluation mode.
        table: of its type.
        attention: name of its attention function.
        version: of transformers.
    """

    model: Any
    table: ModuleTable
    attention: HfAttention
    version: str


def load_transformers(
    checkpoint: Checkpoint, *, dtype: torch.dtype, attention: HfAttention
) -> HfModel:
    """Load ``checkpoint`` with transformers, on the CPU, and check it against its table.

    A synthetic model is written to a temporary folder first.

    Args:
        checkpoint: as `open_checkpoint` gave it.
        dtype: of weights and activations.
        attention: transformers' own attention function.

    Raises:
        EngineError: transformers is not installed, refuses the checkpoint or lacks a tensor of it,
            has no table here, or builds other modules than the table has.
    """
    transformers = _import()
    with TemporaryDirectory(prefix="swarepro-hf-") as folder, quiet(transformers):
        directory, more = _files(checkpoint, Path(folder))
        local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False, **more}
        try:
            config = transformers.AutoConfig.from_pretrained(directory, **local)
        except Exception as error:  # transformers documents no error type for this
            raise _refused(checkpoint, error) from None
        table = _table_of(config.model_type, checkpoint)
        try:
            model, info = transformers.AutoModelForCausalLM.from_pretrained(
                directory,
                config=config,
                dtype=dtype,
                attn_implementation=attention,
                use_safetensors=True,
                output_loading_info=True,
                **local,
            )
        except Exception as error:  # nor for this
            raise _refused(checkpoint, error) from None
    for problem in ("missing_keys", "mismatched_keys", "unexpected_keys"):
        names = sorted(map(str, info.get(problem) or ()))
        if names:
            raise EngineError(
                f"transformers loaded {checkpoint.source} with {problem.replace('_', ' ')}:"
                f" {', '.join(names[:3])}{' and more' if len(names) > 3 else ''}",
                hint="its values would not be the checkpoint's",
            )
    check_model(model, table, checkpoint.config)
    return HfModel(
        model=model.eval(), table=table, attention=attention, version=transformers.__version__
    )


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """Keep transformers' own bars, logs and warnings off the terminal.

    Some of its bars know no switch, and are written to whatever stderr is.
    """
    log = transformers.utils.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity(logging.ERROR)
    log.disable_progress_bar()
    try:
        with warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()


def _import() -> Any:
    try:
        return import_module("transformers")
    except ImportError:
        raise EngineError(
            "capturing a run of transformers needs transformers, which is not installed",
            hint="pip install swarepro[hf]",
        ) from None


def _files(checkpoint: Checkpoint, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return the folder that transformers reads, and what else it has to be told."""
    if isinstance(checkpoint, HuggingFaceDirectory):
        return checkpoint.directory, {}
    if isinstance(checkpoint, GgufCheckpoint):
        return checkpoint.path.parent, {"gguf_file": checkpoint.path.name}
    return write_synthetic(checkpoint.source, folder / "model"), {}


def _table_of(model_type: str, checkpoint: Checkpoint) -> ModuleTable:
    if model_type not in TABLES:
        raise EngineError(
            f"{checkpoint.source}: transformers' model type {model_type!r} has no table of modules",
            hint=f"there are tables for {', '.join(TABLES)}",
        )
    return TABLES[model_type]


def _refused(checkpoint: Checkpoint, error: Exception) -> EngineError:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    text = lines[0] if len(lines[0]) <= _SHOWN else f"{lines[0][:_SHOWN]}..."
    return EngineError(f"transformers cannot load {checkpoint.source}: {text}")
