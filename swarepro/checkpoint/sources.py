"""From the string that names a checkpoint to the checkpoint."""

from pathlib import Path

from swarepro.checkpoint.contract import Checkpoint
from swarepro.checkpoint.gguf_file import open_gguf
from swarepro.checkpoint.gguf_packaged import PACKAGED_NAME, packaged_gguf
from swarepro.checkpoint.safetensors_dir import open_directory
from swarepro.checkpoint.synthetic import SCHEME, open_synthetic
from swarepro.errors import CheckpointError
from swarepro.registry import did_you_mean

_GGUF = "gguf:"
_SCHEMES = (SCHEME, _GGUF)


def open_checkpoint(source: str) -> Checkpoint:
    """Open a checkpoint; reads its config and no weights.

    Args:
        source: ``synthetic:NAME[?seed=N&layers=N]``, ``gguf:PATH``, ``gguf:gemma3-270m``, a path to
            a ``.gguf`` file, or a Hugging Face directory.

    Raises:
        CheckpointError: nothing is there, or what is there is refused; it says why.
    """
    if source.startswith(SCHEME):
        return open_synthetic(source)
    if source == f"{_GGUF}{PACKAGED_NAME}":
        return open_gguf(packaged_gguf(), source=source)
    if source.startswith(_GGUF):
        return _open_gguf_path(Path(source.removeprefix(_GGUF)), source)
    path = Path(source)
    try:
        if path.is_dir():
            return open_directory(path, source=source)
        if path.suffix == ".gguf":
            return _open_gguf_path(path, source)
        if path.exists():
            raise CheckpointError(
                f"{source} is a file that swarepro does not read",
                hint="name the directory that holds config.json, or a .gguf file",
            )
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {source!r}: {error}") from None
    raise CheckpointError(f"no such checkpoint: {source!r}", hint=_suggest(source))


def _open_gguf_path(path: Path, source: str) -> Checkpoint:
    if path.is_dir():
        raise CheckpointError(f"{path} is a directory; wanted a GGUF file")
    if not path.exists():
        known = did_you_mean(str(path), (PACKAGED_NAME,))
        raise CheckpointError(
            f"no such GGUF file: {path}", hint=known or f"or use {_GGUF}{PACKAGED_NAME}"
        )
    return open_gguf(path, source=source)


def _suggest(source: str) -> str:
    scheme, colon, _ = source.partition(":")
    near = did_you_mean(f"{scheme}:", _SCHEMES) if colon else None
    return near or (
        "name a directory, a .gguf file, synthetic:gemma4-tiny, synthetic:gemma3-tiny"
        f" or {_GGUF}{PACKAGED_NAME}"
    )
