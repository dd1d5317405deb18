"""What the command line, the tests and other programs call.

Nothing here imports torch before it is needed: `swarepro --help` answers at once.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from swarepro.case import CaseSpec, load_case
from swarepro.errors import CaseError
from swarepro.options import CaptureOptions, Progress, RunOptions, no_progress
from swarepro.registry import did_you_mean

if TYPE_CHECKING:
    from swarepro.bundle.schema import Manifest, TensorRecord
    from swarepro.compare.types import Divergence, Tolerance
    from swarepro.runs.results import CaseResult, RepeatResult, RunResult

__all__ = [
    "CaptureOptions",
    "DoctorLine",
    "FaultSummary",
    "Inspection",
    "Progress",
    "RunOptions",
    "diff_runs",
    "doctor",
    "fault_summaries",
    "find_case",
    "inspect_bundle",
    "judge_case",
    "no_progress",
    "repeat_case",
    "run_case",
    "shipped_cases",
    "write_synthetic_model",
]

_DEFAULT_OPTIONS = RunOptions()


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
    summary: str
    part: str
    effect: str


def shipped_cases() -> dict[str, Path]:
    """Return the shipped case files by name, sorted."""
    package = Path(__file__).parent
    for folder in (package / "_cases", package.parent / "cases"):
        if folder.is_dir():
            return {path.stem: path for path in sorted(folder.glob("*.toml"))}
    return {}


def find_case(name_or_path: str) -> CaseSpec:
    """Return a shipped case by name, or the case of a TOML path. Raises CaseError."""
    shipped = shipped_cases()
    if name_or_path in shipped:
        return load_case(shipped[name_or_path])
    path = Path(name_or_path)
    if path.suffix == ".toml" or path.is_file():
        return load_case(path)
    raise CaseError(
        f"no such case: {name_or_path!r}",
        hint=did_you_mean(name_or_path, shipped) or f"known: {', '.join(shipped)}",
    )


def run_case(
    case: CaseSpec,
    *,
    out: Path,
    run_id: str | None = None,
    options: RunOptions = _DEFAULT_OPTIONS,
    progress: Progress = no_progress,
) -> "RunResult":
    """Run ``case`` once and write the bundle ``out / run_id``.

    Args:
        case: what to run.
        out: folder of bundles; made when it is not there.
        run_id: name of the bundle; by default the case, its faults and the time.
        options: how to run it.
        progress: told of every step.

    Raises:
        SwareproError: nothing is left behind under ``out / run_id``.
    """
    from swarepro.runs.once import run_to_bundle
    from swarepro.runs.prepare import prepare
    from swarepro.runs.results import RunResult

    directory = out / (run_id if run_id is not None else _default_run_id(case, options))
    prepared = prepare(case, options, progress=progress)
    total = len(prepared.plan.steps)
    manifest = run_to_bundle(
        prepared,
        directory,
        schedule=prepared.schedule,
        on_step=lambda step: progress(f"running {case.name}", step.index + 1, total),
    )
    return RunResult(bundle=directory, manifest=manifest, texts=_texts(case, manifest.tokens))


def _texts(case: CaseSpec, tokens: tuple[tuple[int, ...], ...]) -> tuple[str | None, ...]:
    """Decode what the sessions with a text prompt generated."""
    if all(session.prompt.text is None for session in case.sessions):
        return (None,) * len(tokens)
    from swarepro.checkpoint import open_checkpoint

    tokenizer = open_checkpoint(case.model).tokenizer()
    return tuple(
        None if session.prompt.text is None else tokenizer.decode(ids)
        for session, ids in zip(case.sessions, tokens, strict=True)
    )


def _default_run_id(case: CaseSpec, options: RunOptions) -> str:
    when = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
    return "-".join((case.name, *options.faults, when))


def diff_runs(
    baseline: Path,
    target: Path,
    *,
    align: Literal["step", "position"] | None = None,
    tolerance: "Tolerance | None" = None,
    verify: bool = False,
    progress: Progress = no_progress,
) -> "Divergence":
    """Compare two bundles.

    Args:
        baseline: path of a bundle.
        target: path of a bundle.
        align: how boundaries are matched; None: ``step`` for the same steps, else ``position``.
        tolerance: when values count as equal; None = bitwise.
        verify: hash every stored tensor against its record first.
        progress: told of every boundary that is opened.

    Raises:
        BundleError: a bundle is refused.
        IncomparableError: nothing can be judged.
    """
    from swarepro.bundle.read import open_bundle
    from swarepro.compare.divergence import compare_bundles

    return compare_bundles(
        open_bundle(baseline),
        open_bundle(target),
        align=align,
        tolerance=tolerance,
        verify=verify,
        progress=progress,
    )


def repeat_case(
    case: CaseSpec,
    *,
    repeats: int,
    options: RunOptions = _DEFAULT_OPTIONS,
    fresh_process: bool = False,
    keep: Path | None = None,
    progress: Progress = no_progress,
) -> "RepeatResult":
    """Run ``case`` N times and say what varies.

    Repeat i runs under schedule ``seeded:i``; where kernels are compiled the hardware chooses.

    Args:
        case: what to run.
        repeats: N, at least 2.
        options: how to run it; its schedule is not used.
        fresh_process: each repeat runs in a process of its own.
        keep: folder for the bundles of the modal and of one deviating repeat.
        progress: told of every repeat.

    Raises:
        SwareproError: nothing is left behind under ``keep``.
    """
    from swarepro.runs.repeat import repeat_case as repeat

    return repeat(
        case,
        repeats=repeats,
        options=options,
        fresh_process=fresh_process,
        keep=keep,
        progress=progress,
    )


def judge_case(case: CaseSpec, *, progress: Progress = no_progress) -> "CaseResult":
    """Run both arms of ``case`` and check each line of its [expect]."""
    from swarepro.runs.judge import judge_case as judge

    return judge(case, progress=progress)


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
        FaultSummary(name=name, summary=fault.summary, part=fault.part, effect=fault.effect)
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
