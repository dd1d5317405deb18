"""A synthetic model as a Hugging Face directory on disk."""

import json
import shutil
from collections.abc import Sequence
from math import prod
from pathlib import Path
from uuid import uuid4

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from swarepro.checkpoint.hf_dump import dump_hf_config
from swarepro.checkpoint.hf_names import HfNames
from swarepro.checkpoint.names import WantedTensor, stage_tensors
from swarepro.checkpoint.safetensors_dir import CONFIG_FILE
from swarepro.checkpoint.safetensors_index import INDEX_FILE, SINGLE_FILE
from swarepro.checkpoint.synthetic import SyntheticCheckpoint, open_synthetic
from swarepro.errors import CheckpointError

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_MAKE_ROOM = "check the permissions and the free space there; nothing was left behind"


def write_synthetic(
    spec: str, directory: Path, *, shards: int | None = None, dtype: str = "bf16"
) -> Path:
    """Write ``synthetic:NAME[?...]`` (the prefix may be left out) so that transformers loads it.

    The directory appears with all its files or not at all.

    Args:
        spec: the model.
        directory: must not exist, or be empty.
        shards: number of shards with an index; None is one file without.
        dtype: ``bf16``, ``fp16`` or ``fp32``.

    Returns:
        ``directory``.

    Raises:
        CheckpointError: a bad argument, a directory that holds something, or a failing write.
    """
    checkpoint = open_synthetic(spec)
    if dtype not in _DTYPES:
        raise CheckpointError(f"unknown dtype {dtype!r}", hint=f"known: {', '.join(_DTYPES)}")
    wanted = stage_tensors(
        checkpoint.config,
        0,
        checkpoint.config.num_layers,
        embedding=True,
        head=True,
        namer=HfNames(text_prefix="model.", head="lm_head.weight"),
    )
    if shards is not None and not 1 <= shards <= len(wanted):
        raise CheckpointError(
            f"cannot write {shards} shards of {len(wanted)} tensors",
            hint=f"choose from 1 to {len(wanted)}",
        )
    target = directory.resolve()  # also of "." and of a link to a folder
    partial = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise CheckpointError(
                f"{directory} already exists and is not an empty directory",
                hint="choose another directory, or remove it first",
            )
        partial.mkdir(parents=True)
        _write_files(checkpoint, wanted, partial, shards=shards, dtype=_DTYPES[dtype])
        _publish(partial, target)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot write {directory}: {error}", hint=_MAKE_ROOM) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return directory


def _publish(partial: Path, target: Path) -> None:
    """Give the finished folder its name; an empty folder that is there keeps its identity."""
    if not target.exists():
        partial.rename(target)
        return
    # config.json comes last: without it nobody takes the folder for a checkpoint.
    names = sorted((path.name for path in partial.iterdir()), key=lambda name: name == CONFIG_FILE)
    moved: list[Path] = []
    try:
        for name in names:
            moved.append((partial / name).rename(target / name))
    except BaseException:
        for path in moved:
            path.unlink(missing_ok=True)
        raise


def _write_files(
    checkpoint: SyntheticCheckpoint,
    wanted: Sequence[WantedTensor],
    directory: Path,
    *,
    shards: int | None,
    dtype: torch.dtype,
) -> None:
    config = dump_hf_config(checkpoint.config, dtype=str(dtype).removeprefix("torch."))
    _write_json(directory / CONFIG_FILE, config)
    weight_map = {}
    for index, group in enumerate(_groups(wanted, shards or 1), start=1):
        name = SINGLE_FILE if shards is None else f"model-{index:05}-of-{shards:05}.safetensors"
        data = {
            tensor.name: checkpoint.draw(tensor, device=torch.device("cpu")).to(dtype)
            for tensor in group
        }
        save_file(data, directory / name, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(data, name))
    if shards is not None:
        total = sum(prod(tensor.shape) * dtype.itemsize for tensor in wanted)
        index_data = {"metadata": {"total_size": total}, "weight_map": weight_map}
        _write_json(directory / INDEX_FILE, index_data)


def _groups(wanted: Sequence[WantedTensor], count: int) -> list[list[WantedTensor]]:
    """Cut the tensors, in order, into ``count`` non-empty groups of about the same size."""
    total = sum(prod(tensor.shape) for tensor in wanted)
    groups: list[list[WantedTensor]] = [[]]
    written = 0
    for position, tensor in enumerate(wanted):
        left = count - len(groups)
        is_full = written * count >= total * len(groups)
        if groups[-1] and left and (is_full or len(wanted) - position == left):
            groups.append([])
        groups[-1].append(tensor)
        written += prod(tensor.shape)
    return groups


def _write_json(path: Path, data: object) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
