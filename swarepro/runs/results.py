"""What runs give back. No torch here."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from swarepro.bundle.schema import Manifest, StageOwnership
from swarepro.case import CaseSpec
from swarepro.compare.types import Determinism


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One finished run.

    Attributes:
        bundle: its folder.
        manifest: as it was written.
        texts: the generated tokens as text, by session; None where the prompt was no text.
    """

    bundle: Path
    manifest: Manifest
    texts: tuple[str | None, ...]

    @property
    def violations(self) -> int:
        """Number of ownership violations in all stages."""
        return sum(len(stage.violations) for stage in self.manifest.ownership)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatResult:
    """N finished repeats.

    Attributes:
        determinism: what varies between them.
        ownership: of the modal repeat, by stage.
        kept: bundles of the modal and of one deviating repeat, where they were asked for.
    """

    determinism: Determinism
    ownership: tuple[StageOwnership, ...]
    kept: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One expectation of a case against what was found."""

    arm: Literal["healthy", "faulty", "diff"]
    what: str
    wanted: str
    found: str
    ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """A case judged by its own [expect]."""

    case: CaseSpec
    checks: tuple[CheckResult, ...]

    @property
    def ok(self) -> bool:
        """Whether every expectation was met; a case without checks is not ok."""
        return bool(self.checks) and all(check.ok for check in self.checks)
