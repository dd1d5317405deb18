"""Look at what there is: bundles, faults, this machine; and write a synthetic model."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from swarepro.options import Progress, no_progress

if TYPE_CHECKING:
    from swarepro.bundle.schema import Manifest, TensorRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """A bundle that was read and, if asked for, whose stored tensors were all hashed again."""

    path: Path
    manifest: "Manifest"
    records: tuple["TensorRecord", ...]
    verified: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorLine:
    """One thing that swarepro can use: what was found, whether it serves, and why."""

    what: str
    found: str
    ok: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSummary:
    """One fault that can be injected."""

    name: str
    mechanism: str
    summary: str
    part: str
    effect: str


def inspect_bundle(
    bundle: Path, *, verify: bool = True, progress: Progress = no_progress
) -> Inspection:
    """Read a bundle; with ``verify`` hash every stored tensor against its record.

    Raises:
        BundleError: the bundle is refused.
    """
    from swarepro.bundle.read import open_bundle

    opened = open_bundle(bundle)
    stored = sum(record.file is not None for record in opened.records)
    if verify:
        progress(f"verifying {bundle.name}", 0, stored)
        opened.verify()
        progress(f"verifying {bundle.name}", stored, stored)
    return Inspection(
        path=bundle,
        manifest=opened.manifest,
        records=opened.records,
        verified=stored if verify else 0,
    )


def fault_summaries() -> tuple[FaultSummary, ...]:
    """Return every fault that can be injected."""
    from swarepro.faults import FAULTS

    return tuple(
        FaultSummary(
            name=name,
            mechanism=fault.mechanism,
            summary=fault.summary,
            part=fault.part,
            effect=fault.effect,
        )
        for name, fault in FAULTS
    )


def doctor() -> tuple[DoctorLine, ...]:
    """Return what swarepro finds on this machine."""
    from swarepro.doctor import examine

    return tuple(
        DoctorLine(what=what, found=found, ok=ok, why=why) for what, found, ok, why in examine()
    )


def write_synthetic_model(
    name: str, directory: Path, *, shards: int | None = None, dtype: str = "bf16"
) -> tuple[Path, ...]:
    """Write ``synthetic:name`` as a Hugging Face directory and return its files.

    Args:
        name: with or without ``synthetic:``, with parameters as in a case.
        directory: must not exist or be empty.
        shards: number of safetensors files with an index; None = one file without.
        dtype: ``bf16``, ``fp16`` or ``fp32``.
    """
    from swarepro.checkpoint.synth_write import write_synthetic

    spec = name if name.startswith("synthetic:") else f"synthetic:{name}"
    folder = write_synthetic(spec, directory, shards=shards, dtype=dtype)
    return tuple(sorted(folder.iterdir()))
