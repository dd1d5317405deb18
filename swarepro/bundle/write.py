"""Writing a bundle: steps as they end, the manifest last, and nothing at all after a failure."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import msgspec
import xxhash

from swarepro import points
from swarepro.bundle.digest import BytesLike
from swarepro.bundle.dtypes import NUM_BYTES, tensor_bytes
from swarepro.bundle.schema import (
    MANIFEST,
    RECORDS,
    SCHEMA_VERSION,
    TENSORS,
    ActionEntry,
    BackendEntry,
    CaptureEntry,
    Environment,
    FileEntry,
    Manifest,
    StageEntry,
    StageOwnership,
    StepEntry,
    TensorRecord,
)
from swarepro.bundle.seal import sealed
from swarepro.bundle.tensorfile import StoredTensor, write_tensors
from swarepro.errors import BundleError


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise BundleError(
            f"cannot write {path}: {reason}",
            hint="free some space, or capture less (--store digest, --points)" if full else None,
        ) from error


def make_parents(path: Path) -> None:
    """Make the folders above ``path``; BundleError names what is there and is no folder."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        above = (each for each in path.parents if os.path.lexists(each) and not each.is_dir())
        raise BundleError(
            f"cannot write {path}: {next(above, path.parent)} is no folder",
            hint="choose another --out",
        ) from None


class BundleWriter:
    """Writes one bundle; use it as a context manager.

    Entering creates ``directory``. Leaving before `finish` has returned, for whatever reason,
    removes it. A process that is killed leaves a directory without a manifest, which every reader
    refuses.

    Args:
        directory: of the bundle; its name is the run id. It must not exist.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._encoder = msgspec.json.Encoder()
        self._digest = xxhash.xxh3_128()
        self._lines: BinaryIO | None = None
        self._line_bytes = 0
        self._num_records = 0
        self._files: list[FileEntry] = []
        self._step: list[TensorRecord] = []
        self._stored: list[StoredTensor] = []
        self._last_key: points.ExecKey | None = None
        self._seen: dict[str, int] = {}
        self._current_step = -1
        self._ended_step = -1
        self._finished = False

    def __enter__(self) -> Self:
        with _writing(self._directory):
            make_parents(self._directory)
            try:
                self._directory.mkdir()
            except FileExistsError:
                raise BundleError(
                    f"{self._directory} exists already; a bundle is never overwritten",
                    hint="choose another --out or run id, or remove it first",
                ) from None
        try:
            with _writing(self._directory / RECORDS):
                self._lines = (self._directory / RECORDS).open("xb")
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._finished:
            return
        self._remove()
        if kind is None:
            raise RuntimeError(f"the bundle {self._directory} was left without finish()")

    def _remove(self) -> None:
        try:
            if self._lines is not None:
                self._lines.close()
        except OSError:
            pass  # its buffer could not be flushed either: the file goes anyway
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def directory(self) -> Path:
        """Of the bundle."""
        return self._directory

    @property
    def num_records(self) -> int:
        """Records added so far."""
        return self._num_records

    @property
    def num_bytes(self) -> int:
        """Bytes written so far."""
        return self._line_bytes + sum(entry.num_bytes for entry in self._files)

    def add(self, record: TensorRecord, data: BytesLike | None = None) -> None:
        """Add the next record of the step.

        Args:
            record: its ``index`` and ``file`` are set here, whatever they are.
            data: the tensor's raw bytes when they are to be stored. They are not copied: they must
                not change before `end_step`.

        Raises:
            RuntimeError: the caller is wrong: records out of execution order, a wrong occurrence,
                or ``data`` that does not fit the record.
        """
        point = points.by_name(record.point)
        key = points.exec_key(
            point,
            step=record.step,
            stage=record.stage,
            layer=record.layer,
            occurrence=record.occurrence,
        )
        if self._last_key is not None and key <= self._last_key:
            raise RuntimeError(f"{record.name} of step {record.step} comes after a later boundary")
        if record.step != self._current_step:
            if self._step or record.step <= self._ended_step:
                raise RuntimeError(f"step {self._current_step} was not ended before {record.name}")
            self._current_step = record.step
            self._seen = {}
        occurrence = self._seen.get(record.name, 0)
        if record.occurrence != occurrence:
            raise RuntimeError(
                f"{record.name} of step {record.step}: occurrence {record.occurrence}"
                f" where {occurrence} is next"
            )
        if record.dtype not in NUM_BYTES:
            raise RuntimeError(f"{record.name}: unknown dtype {record.dtype!r}")
        file = None
        if data is not None:
            view = memoryview(data)
            if not view.c_contiguous or view.nbytes != tensor_bytes(record.dtype, record.shape):
                raise RuntimeError(
                    f"{record.name}: {view.nbytes} bytes, contiguous={view.c_contiguous},"
                    f" for {record.dtype} {list(record.shape)}"
                )
            file = f"{TENSORS}/step-{record.step:04d}.safetensors"
            self._stored.append(
                StoredTensor(key=record.key, dtype=record.dtype, shape=record.shape, data=view)
            )
        self._seen[record.name] = occurrence + 1
        self._last_key = key
        self._step.append(msgspec.structs.replace(record, index=self._num_records, file=file))
        self._num_records += 1

    def end_step(self) -> None:
        """Write what was added since the last call; BundleError when it cannot be written."""
        if self._lines is None:
            raise RuntimeError("the bundle is not open")
        if self._stored:
            self._write_tensors(self._step[0].step)
        text = self._encoder.encode_lines(self._step)
        with _writing(self._directory / RECORDS):
            self._lines.write(text)
            self._lines.flush()
        self._digest.update(text)
        self._line_bytes += len(text)
        self._ended_step = self._current_step
        self._step = []
        self._stored = []

    def _write_tensors(self, step: int) -> None:
        name = f"{TENSORS}/step-{step:04d}.safetensors"
        path = self._directory / name
        with _writing(path):
            path.parent.mkdir(exist_ok=True)
            with path.open("xb") as file:
                num_bytes = write_tensors(file, self._stored)
        self._files.append(FileEntry(path=name, num_bytes=num_bytes))

    def finish(
        self,
        *,
        case: dict[str, object],
        model: str,
        num_layers: int,
        steps: tuple[StepEntry, ...],
        stages: tuple[StageEntry, ...],
        capture: CaptureEntry,
        backend: BackendEntry,
        faults: tuple[str, ...],
        environment: Environment,
        prompts: tuple[tuple[int, ...], ...],
        tokens: tuple[tuple[int, ...], ...],
        ownership: tuple[StageOwnership, ...],
        final_actions: tuple[ActionEntry, ...] = (),
        shadow: bool = True,
        recv: str | None = None,
        created: str | None = None,
    ) -> Manifest:
        """Write the manifest, which completes the bundle, and return it.

        The arguments are fields of `Manifest`; ``created`` is now (UTC, ISO 8601) by default.
        """
        if self._step:
            raise RuntimeError(f"step {self._step[0].step} was not ended")
        if self._lines is None:
            raise RuntimeError("the bundle is not open")
        with _writing(self._directory / RECORDS):
            self._lines.close()
        lines = FileEntry(path=RECORDS, num_bytes=self._line_bytes, digest=self._digest.hexdigest())
        manifest = sealed(
            Manifest(
                schema_version=SCHEMA_VERSION,
                run_id=self._directory.name,
                created=created or datetime.now(UTC).isoformat(timespec="seconds"),
                case=case,
                model=model,
                num_layers=num_layers,
                steps=steps,
                stages=stages,
                capture=capture,
                backend=backend,
                faults=faults,
                environment=environment,
                prompts=prompts,
                tokens=tokens,
                ownership=ownership,
                recv=recv,
                num_records=self._num_records,
                files=(lines, *self._files),
                final_actions=final_actions,
                shadow=shadow,
            )
        )
        text = msgspec.json.format(self._encoder.encode(manifest), indent=1) + b"\n"
        self._publish(text)
        self._finished = True
        return manifest

    def _publish(self, text: bytes) -> None:
        path = self._directory / MANIFEST
        temporary = path.with_suffix(".json.tmp")
        with _writing(path):
            with temporary.open("xb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(path)
