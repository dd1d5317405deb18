"""Tokenizers through the `tokenizers` library; a GGUF file's is converted once and cached."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import xxhash

from swarepro.backend import cache_dir
from swarepro.checkpoint.contract import Notify
from swarepro.errors import CheckpointError

_BOS, _BOS_ID = "<bos>", 2
_MIB = 2**20
_CACHE_VERSION = 1  # part of the key: raise it when the conversion changes


@dataclass(frozen=True, slots=True, kw_only=True)
class FastTokenizer:
    """A `Tokenizer` over ``tokenizers.Tokenizer``."""

    backend: Any
    bos_id: int

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text`` with exactly one begin-of-sequence id in front."""
        ids: list[int] = self.backend.encode(text, add_special_tokens=False).ids
        return ids if ids[:1] == [self.bos_id] else [self.bos_id, *ids]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ``ids``, special tokens left out."""
        return str(self.backend.decode(list(ids), skip_special_tokens=True))


def load_tokenizer_json(path: Path) -> FastTokenizer:
    """Load a tokenizer.json.

    Raises:
        CheckpointError: the file is missing or damaged, or `tokenizers` is not installed.
    """
    tokenizers = _import("tokenizers")
    if not path.exists():
        raise CheckpointError(
            f"{path} is missing: the checkpoint has no tokenizer",
            hint="give token ids instead of text, or copy tokenizer.json there",
        )
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception for a file that it cannot parse
        raise CheckpointError(f"{path} is not a readable tokenizer: {error}") from None
    bos = backend.token_to_id(_BOS)
    return FastTokenizer(backend=backend, bos_id=_BOS_ID if bos is None else bos)


def load_gguf_tokenizer(path: Path, *, notify: Notify | None = None) -> FastTokenizer:
    """Load the tokenizer inside a GGUF file, from the cache after the first time.

    Args:
        path: the GGUF file.
        notify: gets a sentence before the conversion, which takes about half a minute.

    Raises:
        CheckpointError: transformers is not installed, the file holds no tokenizer that it can
            convert, or the cache cannot be written.
    """
    cached = cache_dir() / "tokenizers" / f"{_file_key(path)}.json"
    if not cached.exists():
        transformers = _import("transformers")
        if notify is not None:
            notify(f"converting the tokenizer of {path.name} (once, about half a minute)")
        try:
            converted = transformers.AutoTokenizer.from_pretrained(
                str(path.parent), gguf_file=path.name, local_files_only=True
            ).backend_tokenizer.to_str()
        except Exception as error:  # transformers documents no error type for this
            raise CheckpointError(f"{path}: cannot convert its tokenizer: {error}") from None
        _write(cached, converted)
    return load_tokenizer_json(cached)


def _file_key(path: Path) -> str:
    """Identify a file by its size, its first and its last MiB."""
    digest = xxhash.xxh3_128()
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            digest.update(f"{_CACHE_VERSION}:{size}:".encode())
            digest.update(file.read(_MIB))
            file.seek(max(size - _MIB, 0))
            digest.update(file.read(_MIB))
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from None
    return str(digest.hexdigest())


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise CheckpointError(
            f"cannot write the converted tokenizer to {path}: {error.strerror or error}"
        ) from None
    finally:
        partial.unlink(missing_ok=True)


def _import(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError:
        raise CheckpointError(
            f"text prompts need the library {name}, which is not installed",
            hint="pip install swarepro[hf], or give token ids instead of text",
        ) from None
