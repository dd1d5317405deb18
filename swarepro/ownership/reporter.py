"""Turns what a check found on one stage into a violation with its owners and its sentence."""

from swarepro.kvcache import KVGroup
from swarepro.ownership.violations import Owner, ViolationLog


class Reporter:
    """The log of the run, as one stage writes to it.

    Attributes:
        step: to which what is seen now belongs.
    """

    def __init__(self, log: ViolationLog, stage: int) -> None:
        self._log = log
        self._stage = stage

    @property
    def step(self) -> int:
        """As the log's."""
        return self._log.step

    def knows(self, kind: str, group: KVGroup | None) -> bool:
        """Return whether there is nothing to add: one of this kind and group is kept already."""
        return self._log.knows(kind, stage=self._stage, group=group)

    def __call__(
        self,
        kind: str,
        message: str,
        *,
        layer: int | None = None,
        group: KVGroup | None = None,
        positions: list[int] | None = None,
        slots: list[int] | None = None,
        owner: Owner | None = None,
        user: Owner | None = None,
    ) -> None:
        """Add a violation of this stage."""
        self._log.add(
            kind,
            stage=self._stage,
            message=message,
            layer=layer,
            group=group,
            positions=tuple(positions or ()),
            slots=tuple(slots or ()),
            owner=owner,
            user=user,
        )
