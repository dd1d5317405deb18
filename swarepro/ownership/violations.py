"""What the ownership shadow reports, and the log that keeps it in execution order."""

from dataclasses import dataclass

from swarepro.kvcache import KVGroup
from swarepro.rules import VIOLATION_KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose row a slot holds: a position of a session."""

    session: int
    position: int

    def __str__(self) -> str:
        return f"session {self.session} position {self.position}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken rule of slot ownership.

    Attributes:
        kind: one of `VIOLATION_KINDS`.
        stage: index of the stage.
        step: of the run, in which it was seen first; what is done before a step belongs to it, what
            is done after the last step to the last.
        layer: global layer id; None where no layer is concerned.
        group: whose pool; None where no pool is concerned.
        positions: of ``user``'s session, or of ``owner``'s where nobody uses the slots.
        slots: that the rule is broken for.
        owner: who owns, or last owned, the first of ``slots``; None = nobody ever did.
        user: who uses it; None where nobody does.
        message: one sentence that says what it means.
        order: place among all violations of the run, from 0, in execution order.
    """

    kind: str
    stage: int
    step: int
    layer: int | None
    group: KVGroup | None
    positions: tuple[int, ...]
    slots: tuple[int, ...]
    owner: Owner | None
    user: Owner | None
    message: str
    order: int


class ViolationLog:
    """The violations of a run, of all its stages: the first of each stage, group and kind."""

    def __init__(self) -> None:
        self._step = 0
        self._found: dict[tuple[int, KVGroup | None, str], Violation] = {}

    @property
    def step(self) -> int:
        """The step to which what is seen now belongs."""
        return self._step

    @property
    def violations(self) -> tuple[Violation, ...]:
        """All violations, in execution order."""
        return tuple(self._found.values())

    @property
    def first(self) -> Violation | None:
        """The first violation in execution order: the headline."""
        return next(iter(self._found.values()), None)

    def begin_step(self, step: int) -> None:
        """Say that all that follows belongs to ``step``, actions before its spans included."""
        self._step = step

    def knows(self, kind: str, *, stage: int, group: KVGroup | None) -> bool:
        """Return whether a violation of this stage, group and kind is kept already."""
        return (stage, group, kind) in self._found

    def add(
        self,
        kind: str,
        *,
        stage: int,
        message: str,
        layer: int | None = None,
        group: KVGroup | None = None,
        positions: tuple[int, ...] = (),
        slots: tuple[int, ...] = (),
        owner: Owner | None = None,
        user: Owner | None = None,
    ) -> None:
        """Keep a violation, unless one of its stage, group and kind is kept already."""
        if kind not in VIOLATION_KINDS:
            raise RuntimeError(f"undeclared kind of violation: {kind}")
        if self.knows(kind, stage=stage, group=group):
            return
        self._found[stage, group, kind] = Violation(
            kind=kind,
            stage=stage,
            step=self._step,
            layer=layer,
            group=group,
            positions=positions,
            slots=slots,
            owner=owner,
            user=user,
            message=message,
            order=len(self._found),
        )
