"""Whether a model of transformers is as its table says: every module and tensor, no more."""

from typing import Any

from swarepro.checkpoint.config import ModelConfig
from swarepro.checkpoint.hf_names import HfNames
from swarepro.checkpoint.names import EMBEDDING, stage_tensors, tensor_shape
from swarepro.errors import EngineError
from swarepro.hf.table import HEAD, LAYERS, TEXT_MODEL, ModuleTable

_HINT = "this version of transformers builds the model otherwise, or something changed it"
_V_PROJECTION = "self_attn.v_proj"


def check_model(model: Any, table: ModuleTable, config: ModelConfig) -> None:
    """Compare the modules and the tensors of ``model`` with its table and with our config.

    Args:
        model: of transformers, as it was loaded.
        table: of its type.
        config: our reading of the same checkpoint.

    Raises:
        EngineError: naming the first module or tensor that is missing, is one too many, or is of
            another class or shape, with what was found and what was wanted.
    """
    _check_modules(model, _wanted_modules(table, config))
    _check_tensors(model, _wanted_tensors(config))


def _wanted_modules(table: ModuleTable, config: ModelConfig) -> dict[str, str]:
    wanted = {"": table.model, **table.ends}
    for layer in config.layers:
        for path, kind in table.layer.items():
            if not (path == _V_PROJECTION and layer.k_eq_v):
                wanted[f"{LAYERS}.{layer.layer}{'.' if path else ''}{path}"] = kind
    return wanted


def _check_modules(model: Any, wanted: dict[str, str]) -> None:
    found = {
        path: type(module).__name__ for path, module in model.named_modules(remove_duplicate=False)
    }
    for path, kind in wanted.items():
        name = f"module {path!r}" if path else "the model"
        if path not in found:
            raise EngineError(f"transformers: {name} is missing; wanted {kind}", hint=_HINT)
        if found[path] != kind:
            raise EngineError(f"transformers: {name} is {found[path]}; wanted {kind}", hint=_HINT)
    for path, kind in found.items():
        if path not in wanted:
            raise EngineError(
                f"transformers: module {path!r}, {kind}, is in the model and not in its table",
                hint=_HINT,
            )


def _wanted_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    names = HfNames(text_prefix=f"{TEXT_MODEL}.", head=f"{HEAD}.weight")
    tensors = stage_tensors(config, 0, config.num_layers, embedding=True, head=True, namer=names)
    wanted = {tensor.name: tensor.shape for tensor in tensors}
    wanted.setdefault(names.head, tensor_shape(EMBEDDING, config, None))  # also of a tied head
    return wanted


def _check_tensors(model: Any, wanted: dict[str, tuple[int, ...]]) -> None:
    found = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    for name, shape in wanted.items():
        if found.get(name) != shape:
            what = "is missing" if name not in found else f"has shape {list(found[name])}"
            raise EngineError(
                f"transformers: tensor {name!r} {what}; wanted shape {list(shape)}", hint=_HINT
            )
    for name, shape in found.items():
        if name not in wanted:
            raise EngineError(
                f"transformers: tensor {name!r}, {list(shape)}, is in the model and not in its"
                " table",
                hint=_HINT,
            )
