"""The error family of swarepro and its exit codes.

A `SwareproError` is the user's to fix: the command line prints message and hint, never a
traceback. Anything else that escapes is an internal error (exit 70), so that a crash never reads
as a finding.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """Process exit codes, after diff(1)."""

    NOTHING_FOUND = 0
    FINDING = 1
    CANNOT_JUDGE = 2
    INTERNAL = 70


class SwareproError(Exception):
    """A problem that the user can act on.

    Args:
        message: names the thing, what was found and what was wanted.
        hint: what to do about it, or None.
    """

    exit_code = ExitCode.CANNOT_JUDGE

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class UsageError(SwareproError):
    """Options or arguments that contradict each other or cannot be met."""


class CaseError(SwareproError):
    """A case that cannot be found, read or planned."""


class CheckpointError(SwareproError):
    """Weights or a model config that are missing, damaged, inconsistent or unsupported."""


class BackendError(SwareproError):
    """A device, a route or a library that was asked for and is not there."""


class EngineError(SwareproError):
    """Another program whose run cannot be captured: it is missing, or not as it is known here."""


class BundleError(SwareproError):
    """A bundle that cannot be written, or one that a reader refuses."""


class ForeignError(SwareproError):
    """A dump of another engine, or a map of it, that cannot be imported."""


class IncomparableError(SwareproError):
    """Two bundles between which no boundary can be judged."""


class SessionError(SwareproError):
    """A call that the session's lifecycle refuses before anything runs."""


class PositionGapError(SessionError):
    """A call that starts beyond the positions that the session owns."""


class CapacityError(SessionError):
    """A call that needs more slots than the pool has free; nothing was allocated."""


class ReuseError(SessionError):
    """A prefix that cannot be taken over; nothing has changed."""


class SlotRangeError(SessionError):
    """A slot outside its pool; the access that it was for has not been made."""


class LayerTableError(SessionError):
    """A layer table that gives a layer the shapes of another; nothing has run."""


class StageEdgeError(SessionError):
    """What a stage received is not what the edge of a stage carries; none of its layers has run."""
