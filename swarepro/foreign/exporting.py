"""A bundle as plain safetensors files that any program reads, with an index of whose they are."""

import shutil
from pathlib import Path

import msgspec

from swarepro.bundle.read import Bundle, open_bundle
from swarepro.bundle.schema import TensorRecord
from swarepro.bundle.tensorfile import StoredTensor, write_tensors
from swarepro.bundle.write import make_parents
from swarepro.errors import ForeignError
from swarepro.foreign.index import INDEX, Index, IndexedTensor
from swarepro.foreign.results import ExportResult
from swarepro.options import Progress


def export_bundle(path: Path, directory: Path, *, progress: Progress) -> ExportResult:
    """Write ``directory``: a file for each step, keys as in the bundle, and `INDEX`.

    Every tensor is checked against its digest on the way. A failure leaves nothing behind.

    Args:
        path: of the bundle.
        directory: must not exist.
        progress: told of every step.

    Raises:
        BundleError: the bundle is refused.
        ForeignError: it stores no tensor, or the folder cannot be written.
    """
    bundle = open_bundle(path)
    if not bundle.num_stored:
        raise ForeignError(
            f"{path} stores no tensor, only digests", hint="run again with --store tensor"
        )
    try:
        make_parents(directory)
        directory.mkdir()
    except FileExistsError:
        raise ForeignError(
            f"{directory} exists already; an export overwrites nothing",
            hint="choose another --out, or remove it first",
        ) from None
    except OSError as error:
        raise ForeignError(f"cannot write {directory}: {_reason(error)}") from None
    try:
        return _write(bundle, directory, progress)
    except OSError as error:
        shutil.rmtree(directory, ignore_errors=True)
        raise ForeignError(f"cannot write {directory}: {_reason(error)}") from None
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _write(bundle: Bundle, directory: Path, progress: Progress) -> ExportResult:
    by_step: dict[int, list[TensorRecord]] = {}
    for record in bundle.records:
        if record.file is not None:
            by_step.setdefault(record.step, []).append(record)
    files, num_bytes = [], 0
    for done, (step, records) in enumerate(by_step.items(), start=1):
        file = directory / f"{_stem(step)}.safetensors"
        stored = [
            StoredTensor(
                key=record.key,
                dtype=record.dtype,
                shape=record.shape,
                data=memoryview(bundle.tensor(record).reshape(-1).view("u1").data),
            )
            for record in records
        ]
        with file.open("xb") as opened:
            num_bytes += write_tensors(opened, stored)
        files.append(file)
        progress(f"exporting {bundle.path.name}", done, len(by_step))
    text = msgspec.json.format(msgspec.json.encode(_index(bundle)), indent=1) + b"\n"
    (directory / INDEX).write_bytes(text)
    return ExportResult(
        directory=directory,
        files=tuple(files),
        num_tensors=bundle.num_stored,
        left_out=len(bundle.records) - bundle.num_stored,
        num_bytes=num_bytes + len(text),
    )


def _stem(step: int) -> str:
    return f"step-{step:04d}"


def _index(bundle: Bundle) -> Index:
    manifest = bundle.manifest
    return Index(
        model=manifest.model,
        num_layers=manifest.num_layers,
        steps=manifest.steps,
        stages=manifest.stages,
        capture=manifest.capture,
        backend=manifest.backend,
        faults=manifest.faults,
        prompts=manifest.prompts,
        tokens=manifest.tokens,
        final_actions=manifest.final_actions,
        left_out=len(bundle.records) - bundle.num_stored,
        tensors=tuple(
            IndexedTensor(
                file=_stem(record.step),
                key=record.key,
                step=record.step,
                stage=record.stage,
                session=record.session,
            )
            for record in bundle.records
            if record.file is not None
        ),
    )


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
