"""Who owns which SWA slot, checked after every step of a stage.

It looks at the slots that the step's metadata gave to the store, and at the allocator's books; what
a store does with its slots is not seen here.
"""

from dataclasses import dataclass
from typing import Protocol

import torch

from swarepro.kvcache.allocator import SlotAllocator
from swarepro.kvcache.spec import SENTINEL_SLOT

VIOLATION_KINDS = (
    "sentinel-store",
    "duplicate-slot-store",
    "unallocated-store",
    "live-after-reset",
    "sentinel-on-free-list",
    "free-while-mapped",
    "duplicate-owner",
    "mapping-lost",
)
"""Every kind of violation that the check can report."""


class OwnedSlots(Protocol):
    """What the check looks at; `swarepro.kvcache.session.SwaSession` is one."""

    @property
    def full_slots(self) -> torch.Tensor:
        """``[capacity]`` int64, full slot of each position."""

    @property
    def mapping(self) -> torch.Tensor:
        """``[capacity + 1]`` int64, SWA slot by full slot."""

    @property
    def allocator(self) -> SlotAllocator:
        """The free list."""

    @property
    def allocated(self) -> int:
        """The frontier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipViolation:
    """One broken rule: its kind, the step that showed it first, whom it concerns, what it means."""

    kind: str
    step: int
    positions: tuple[int, ...]
    slots: tuple[int, ...]
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipReport:
    """The SWA slots of a stage at one moment.

    Attributes:
        capacity: slots that can be handed out.
        free: slots on the free list.
        live: slots handed out.
        positions: positions of the current session that were stored.
        owned: SWA slot of each of these positions, by the mapping; 0 = none.
        violations: in the order in which they were seen; each kind once per stage.
    """

    capacity: int
    free: int
    live: int
    positions: int
    owned: tuple[int, ...]
    violations: tuple[OwnershipViolation, ...]


class OwnershipCheck:
    """Collects violations of one stage over a run."""

    def __init__(self) -> None:
        self._violations: dict[str, OwnershipViolation] = {}
        self._positions = 0

    def after_store(self, step: int, start: int, stored: torch.Tensor, owner: OwnedSlots) -> None:
        """Check the SWA slots ``stored [T]`` into which a step wrote positions ``start ...``."""
        self._positions = start + stored.numel()
        is_sentinel = stored == SENTINEL_SLOT
        if bool(is_sentinel.any()):
            at = (is_sentinel.nonzero().flatten() + start).tolist()
            self._add(
                "sentinel-store",
                step,
                at,
                [SENTINEL_SLOT],
                f"{_positions(at)} stored to SWA slot {SENTINEL_SLOT}, which nobody owns:"
                " they overwrite one another",
            )
        real = stored[~is_sentinel]
        unique, counts = torch.unique(real, return_counts=True)
        if unique.numel() != real.numel():
            shared = unique[counts > 1]
            at = (torch.isin(stored, shared).nonzero().flatten() + start).tolist()
            self._add(
                "duplicate-slot-store",
                step,
                at,
                shared.tolist(),
                f"{_positions(at)} share SWA slots within one store",
            )
        free = _free(owner)
        unowned = torch.isin(real, free)
        if bool(unowned.any()):
            at_rows = torch.isin(stored, real[unowned]).nonzero().flatten() + start
            self._add(
                "unallocated-store",
                step,
                at_rows.tolist(),
                real[unowned].tolist(),
                f"{_positions(at_rows.tolist())} stored to SWA slots that are on the free list",
            )
        self._account(step, owner)

    def after_reset(self, step: int, owner: OwnedSlots) -> None:
        """Check that nothing is live after the reset before ``step``."""
        self._positions = 0
        live = owner.mapping[owner.full_slots]
        live = live[(live != SENTINEL_SLOT) & ~torch.isin(live, _free(owner))]
        if live.numel():
            self._add(
                "live-after-reset",
                step,
                [],
                live.tolist(),
                f"{live.numel()} SWA slots are still owned after the reset: it was skipped",
            )
        self._account(step, owner)

    def report(self, owner: OwnedSlots) -> OwnershipReport:
        """Return the accounting at this moment and all violations so far."""
        owned = owner.mapping[owner.full_slots[: self._positions]]
        return OwnershipReport(
            capacity=owner.allocator.capacity,
            free=owner.allocator.num_free,
            live=owner.allocator.num_live,
            positions=self._positions,
            owned=tuple(owned.tolist()),
            violations=tuple(self._violations.values()),
        )

    def _account(self, step: int, owner: OwnedSlots) -> None:
        """Free and mapped slots must be disjoint, distinct, and together the whole pool."""
        free = _free(owner)
        by_position = owner.mapping[owner.full_slots]
        is_mapped = by_position != SENTINEL_SLOT
        mapped = by_position[is_mapped]
        if bool((free == SENTINEL_SLOT).any()):
            self._add(
                "sentinel-on-free-list",
                step,
                [],
                [SENTINEL_SLOT],
                "the free list holds the sentinel: it will be handed out as if it were a slot",
            )
        stale = torch.isin(by_position, free) & is_mapped
        if bool(stale.any()):
            at = stale.nonzero().flatten().tolist()
            self._add(
                "free-while-mapped",
                step,
                at,
                by_position[stale].tolist(),
                f"{_positions(at)} still map to SWA slots that are free: a stale mapping",
            )
        shared, counts = torch.unique(mapped, return_counts=True)
        if shared.numel() != mapped.numel():
            twice = shared[counts > 1]
            at = torch.isin(by_position, twice).nonzero().flatten().tolist()
            self._add(
                "duplicate-owner", step, at, twice.tolist(), f"{_positions(at)} own the same slots"
            )
        pool = torch.arange(1, owner.allocator.capacity + 1)
        lost = pool[~torch.isin(pool, free) & ~torch.isin(pool, mapped)]
        if lost.numel():
            self._add(
                "mapping-lost",
                step,
                [],
                lost.tolist(),
                f"{lost.numel()} SWA slots are neither free nor owned by any position: a leak",
            )

    def _add(
        self, kind: str, step: int, positions: list[int], slots: list[int], message: str
    ) -> None:
        if kind not in VIOLATION_KINDS:
            raise RuntimeError(f"undeclared kind of violation: {kind}")
        if kind not in self._violations:
            self._violations[kind] = OwnershipViolation(
                kind=kind,
                step=step,
                positions=tuple(positions),
                slots=tuple(slots),
                message=message,
            )


def _free(owner: OwnedSlots) -> torch.Tensor:
    """Return the slots on the free list."""
    return owner.allocator.free_list[owner.allocator.num_live :]


def _positions(at: list[int]) -> str:
    if len(at) == 1:
        return f"position {at[0]}"
    if at[-1] - at[0] + 1 == len(at):
        return f"positions {at[0]} to {at[-1]}"
    return f"{len(at)} positions between {at[0]} and {at[-1]}"
