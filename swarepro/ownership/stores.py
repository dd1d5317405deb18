"""Checks a store before it is made: each row into the slot that its position owns."""

from collections.abc import Mapping

import torch

from swarepro.kvcache import KVGroup
from swarepro.ownership.keys import owner_of, positions_of, sessions_of
from swarepro.ownership.reporter import Reporter
from swarepro.ownership.rows import RowDigests, span_keys
from swarepro.ownership.slots import FREE, SlotStates
from swarepro.ownership.translation import report_range
from swarepro.ownership.words import be, positions_text, slots_text
from swarepro.plan import Span
from swarepro.runtime.parts import StoreContext


class StoreCheck:
    """The checks at the stores of one stage.

    Args:
        states: by group.
        num_slots: of the pools, the reserved ones among them, by group.
        page_size: of the pools.
        row_digests: maps rows ``[N, 2, K, D]`` to ``[N]`` int64, on their device.
    """

    def __init__(
        self,
        states: Mapping[KVGroup, SlotStates],
        num_slots: Mapping[KVGroup, int],
        page_size: int,
        row_digests: RowDigests,
        report: Reporter,
    ) -> None:
        self._states = states
        self._num_slots = num_slots
        self._page_size = page_size
        self._row_digests = row_digests
        self._report = report
        self._spans: tuple[Span, ...] = ()
        self._keys = torch.empty(0, dtype=torch.int64)

    def check(self, slots: torch.Tensor, context: StoreContext) -> torch.Tensor:
        """Report what is wrong with ``slots [T]``; return ``[T]`` bool: rows in slots of theirs."""
        keys = self._keys_of(context.spans)
        states = self._states[context.group]
        if slots.shape != keys.shape:
            return torch.zeros_like(slots, dtype=torch.bool)
        beyond = (slots < 0) | (slots >= self._num_slots[context.group])
        safe = torch.where(beyond, 0, slots)
        right = states.owner[safe] == keys  # of distinct rows, so their slots are distinct too
        if not bool(right.all()):
            self._classify(slots, keys, beyond, right, context)
        return right

    def remember(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        slots: torch.Tensor,
        right: torch.Tensor,
        context: StoreContext,
    ) -> None:
        """Keep the digests of the rows ``k, v [T, K, D]`` that were written into slots of theirs.

        A row in another's slot is not kept: its owner's row has changed since it was written.
        """
        states = self._states[context.group]
        if context.pool_layer >= len(states.digests) or not bool(right.any()):
            return
        digests = self._row_digests(torch.stack([k, v], dim=1)).cpu()
        states.write(context.pool_layer, slots[right], digests[right], context.step)

    def _keys_of(self, spans: tuple[Span, ...]) -> torch.Tensor:
        if spans != self._spans:
            self._spans, self._keys = spans, span_keys(spans)
        return self._keys

    def _classify(
        self,
        raw: torch.Tensor,
        keys: torch.Tensor,
        beyond: torch.Tensor,
        right: torch.Tensor,
        context: StoreContext,
    ) -> None:
        states, group = self._states[context.group], context.group
        slots = torch.where(beyond, 0, raw)
        if bool(beyond.any()):
            last = self._num_slots[group] - 1
            report_range(self._report, group, raw[beyond], keys[beyond], last, layer=context.layer)
        sentinel = ~beyond & (slots < self._page_size)
        real = ~beyond & ~sentinel
        counts = torch.bincount(slots[real], minlength=states.num_slots)
        shared = real & (counts[slots] > 1)
        free = real & (states.status[slots] == FREE)
        found = {
            "sentinel-store": sentinel,
            "duplicate-slot-store": shared,
            "unallocated-store": free,
            "foreign-store": real & ~free & ~right,
        }
        for kind, rows in found.items():
            if bool(rows.any()):
                self._add(kind, slots[rows], keys[rows], context)

    def _add(
        self, kind: str, slots: torch.Tensor, keys: torch.Tensor, context: StoreContext
    ) -> None:
        group = context.group
        mine = sessions_of(keys) == sessions_of(keys[0])
        positions, used = positions_of(keys[mine]).tolist(), slots[mine].tolist()
        user = owner_of(int(keys[0]))
        owner = owner_of(int(self._states[group].last_keys(slots[:1])))
        session = int(sessions_of(keys[0]))
        who = f"{positions_text(session, positions)} {be(positions)}"
        alone = len(set(used)) == 1
        if kind == "sentinel-store":
            what = f"stored to {slots_text(group, used)}, the sentinel's, which nobody owns" + (
                ": they overwrite one another" if len(positions) > 1 else ""
            )
            owner = None
        elif kind == "duplicate-slot-store":
            what = (
                f"stored to {slots_text(group, used)} within one store: rows share slots, and the"
                " last writer wins"
            )
        elif kind == "unallocated-store":
            what = f"stored to {slots_text(group, used)}, which nobody owns"
            if owner:
                what += f" any more: {owner} was the last to own {'it' if alone else 'the first'}"
        else:
            what = f"stored to {slots_text(group, used)}, which {owner} owns"
            if not alone:
                first = slots_text(group, used[:1])
                what = f"stored to slots of others: {first} is what {owner} owns"
        self._report(
            kind,
            f"{who} {what}",
            layer=context.layer,
            group=group,
            positions=positions,
            slots=used,
            owner=owner,
            user=user,
        )
