"""Judges what a translation gave, for the positions that this step will use."""

from collections.abc import Sequence

import torch

from swarepro.kvcache import KVGroup
from swarepro.ownership.events import AllocatorEvents
from swarepro.ownership.keys import owner_keys, owner_of, positions_of, sessions_of
from swarepro.ownership.reporter import Reporter
from swarepro.ownership.words import POOLS, be, positions_text, slots_text
from swarepro.plan import Span


class TranslationCheck:
    """The checks between an allocator and the metadata: range, and age of the mapping.

    Args:
        num_slots: of the pools, the reserved ones among them, by group.
        window_left: keys that a query sees to its left in sliding layers; None without them.
    """

    def __init__(
        self,
        events: AllocatorEvents,
        num_slots: dict[KVGroup, int],
        window_left: int | None,
        report: Reporter,
    ) -> None:
        self._events = events
        self._num_slots = num_slots
        self._window_left = window_left
        self._report = report

    def full_slots(self, session: int, slots: torch.Tensor) -> None:
        """Check the full slots ``[end]`` of a session."""
        if KVGroup.FULL in self._num_slots:
            keys = owner_keys(session, 0, slots.numel())
            self._check_range(KVGroup.FULL, slots.cpu(), keys)

    def translated(self, full_slots: torch.Tensor, slots: torch.Tensor) -> None:
        """Check the SWA slots ``[C]`` that ``full_slots [C]`` were translated to."""
        full_slots, slots = full_slots.cpu(), slots.cpu()
        mapping, states = self._events.books.mapping, self._events.states[KVGroup.FULL]
        if KVGroup.SLIDING not in self._num_slots or slots.shape != full_slots.shape:
            return
        inside = (full_slots >= 0) & (full_slots < mapping.numel())
        full_slots, slots = full_slots[inside], slots[inside]
        differs = slots != mapping[full_slots]
        beyond = (slots < 0) | (slots >= self._num_slots[KVGroup.SLIDING])
        if not bool((differs | beyond).any()):
            return
        keys = states.owner[full_slots]
        used = self._is_used(keys, self._events.spans)
        self._check_range(KVGroup.SLIDING, slots[used], keys[used])
        self._check_age(full_slots, slots, keys, differs & used & (slots != 0))

    def _check_range(self, group: KVGroup, slots: torch.Tensor, keys: torch.Tensor) -> None:
        last = self._num_slots[group] - 1
        beyond = (slots < 0) | (slots > last)
        if bool(beyond.any()):
            report_range(self._report, group, slots[beyond], keys[beyond], last, layer=None)

    def _check_age(
        self,
        full_slots: torch.Tensor,
        slots: torch.Tensor,
        keys: torch.Tensor,
        wrong: torch.Tensor,
    ) -> None:
        if not bool(wrong.any()):
            return
        full_slots, slots, keys = full_slots[wrong], slots[wrong], keys[wrong]
        history = self._events.history
        if not bool(history.is_old(full_slots, slots).all()):
            return
        user = owner_of(int(keys[0]))
        mine = sessions_of(keys) == sessions_of(keys[0])
        positions = positions_of(keys[mine]).tolist()
        states = self._events.states[KVGroup.SLIDING]
        owner = owner_of(int(states.last_keys(slots[:1])))
        now = int(self._events.books.mapping[full_slots[0]])
        whose = f", of {owner}" if owner else ""
        who = positions_text(user.session, positions) if user else "a full slot that nobody owns"
        to = slots_text(KVGroup.SLIDING, [int(slots[0])])
        self._report(
            "stale-translation",
            f"{who} {be(positions)} translated as the mapping was before its generation"
            f" {int(history.changed[full_slots[0]])}: to {to}{whose}, and not to slot {now}",
            group=KVGroup.SLIDING,
            positions=positions,
            slots=slots[mine].tolist(),
            owner=owner,
            user=user,
        )

    def _is_used(self, keys: torch.Tensor, spans: Sequence[Span]) -> torch.Tensor:
        """Return ``[C]`` bool: positions that a query of this step can see, or that it stores."""
        sessions, positions = sessions_of(keys), positions_of(keys)
        used = torch.zeros_like(keys, dtype=torch.bool)
        for span in spans:
            start = span.start - (self._window_left or 0)
            used |= (sessions == span.session) & (positions >= start) & (positions < span.end)
        return used


def report_range(
    report: Reporter,
    group: KVGroup,
    slots: torch.Tensor,
    keys: torch.Tensor,
    last: int,
    *,
    layer: int | None,
) -> None:
    """Report slots ``[N]`` outside a pool whose last slot is ``last``, and who would use them."""
    user = owner_of(int(keys[0]))
    mine = sessions_of(keys) == sessions_of(keys[0])
    positions = positions_of(keys[mine]).tolist() if user else []
    who = positions_text(user.session, positions) if user else "a row of nobody"
    report(
        "index-out-of-range",
        f"{who} {be(positions)} led to {slots_text(group, slots[mine].tolist())},"
        f" outside the {POOLS[group]} pool, whose last slot is {last}",
        layer=layer,
        group=group,
        positions=positions,
        slots=slots[mine].tolist(),
        user=user,
    )
