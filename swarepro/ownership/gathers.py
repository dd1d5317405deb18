"""Checks what an attention call reads: each slot holds the row of the position it stands for."""

from collections.abc import Mapping, Sequence

import torch

from swarepro.kvcache import KVGroup, KVPool
from swarepro.ownership.keys import owner_of, positions_of, sessions_of
from swarepro.ownership.reporter import Reporter
from swarepro.ownership.rows import RowDigests, VisibleRows, visible_rows
from swarepro.ownership.sessions import ShadowSessions
from swarepro.ownership.slots import FREE, SlotStates
from swarepro.ownership.translation import report_range
from swarepro.ownership.words import be, positions_text, slots_text
from swarepro.plan import Span
from swarepro.runtime.parts import AttentionCall

_MEANINGS = {
    "sentinel-read": "the sentinel's, where nobody's row lies",
    "evicted-read": "after an eviction took the slot of a position that a query still sees",
    "stale-generation-read": "once its own and no longer",
    "wrong-position-read": "where another position's row lies",
    "unwritten-read": "its own, where nobody has written",
    "row-changed-since-write": "its own, where the row is not what was stored",
}


class GatherCheck:
    """The checks at the attention calls of one stage.

    Args:
        pools: by group.
        states: by group.
        sessions: that have not ended.
        page_size: of the pools.
        row_digests: as the digests at the store were made.
    """

    def __init__(
        self,
        pools: Mapping[KVGroup, KVPool],
        states: Mapping[KVGroup, SlotStates],
        sessions: ShadowSessions,
        page_size: int,
        row_digests: RowDigests,
        report: Reporter,
    ) -> None:
        self._pools = pools
        self._states = states
        self._sessions = sessions
        self._page_size = page_size
        self._row_digests = row_digests
        self._report = report
        self._step = -1
        self._rows: dict[
            _Shape, VisibleRows
        ] = {}  # of this step; the same for all layers of a group

    def check(self, call: AttentionCall, *, reads_own: Sequence[bool]) -> None:
        """Report what is wrong with the rows that a call is going to read."""
        rows = self._visible_rows(call, reads_own)
        if not rows.keys.numel() or call.pool_layer >= len(self._states[call.group].digests):
            return
        states, pool = self._states[call.group], self._pools[call.group]
        slots = call.slots.cpu()[rows.entries]
        beyond = (slots < 0) | (slots >= pool.num_slots)
        safe = torch.where(beyond, 0, slots)
        stored = states.digests[call.pool_layer, safe]
        right = (states.owner[safe] == rows.keys) & (stored != 0)
        digests = stored.clone()
        if bool(right.all()):
            digests = self._digests(pool, call.pool_layer, safe)
        elif bool(right.any()):
            digests[right] = self._digests(pool, call.pool_layer, safe[right])
        changed = right & (digests != stored)
        if not bool(right.all()) or bool(changed.any()):
            self._classify(call, rows.keys, slots, stored != 0, changed)

    def _digests(self, pool: KVPool, pool_layer: int, slots: torch.Tensor) -> torch.Tensor:
        rows = pool.gather(pool_layer, slots.to(pool.kv.device))
        digests = self._row_digests(rows).cpu()
        return torch.where(digests == 0, 1, digests)

    def _visible_rows(self, call: AttentionCall, reads_own: Sequence[bool]) -> VisibleRows:
        if call.step != self._step:
            self._step = call.step
            self._rows.clear()
        requests = tuple((x.span, x.visible_start, x.entries.start) for x in call.requests)
        shape = (requests, tuple(reads_own), call.window_left, call.slots.numel())
        if shape not in self._rows:
            self._rows[shape] = visible_rows(call, reads_own=reads_own)
        return self._rows[shape]

    def _classify(
        self,
        call: AttentionCall,
        keys: torch.Tensor,
        raw: torch.Tensor,
        written: torch.Tensor,
        changed: torch.Tensor,
    ) -> None:
        states = self._states[call.group]
        last = self._pools[call.group].num_slots - 1
        beyond = (raw < 0) | (raw > last)
        slots = torch.where(beyond, 0, raw)
        if bool(beyond.any()):
            report_range(
                self._report,
                call.group,
                raw[beyond],
                keys[beyond],
                last,
                layer=call.layer,
            )
        evicted = self._evicted(call, keys)
        sentinel = ~beyond & (slots < self._page_size)
        real = ~beyond & ~sentinel
        free = real & (states.status[slots] == FREE)
        foreign = real & ~free & (states.owner[slots] != keys)
        earlier = states.previous[slots] == keys
        found = {
            "sentinel-read": sentinel & ~evicted,
            "evicted-read": (sentinel | free) & evicted,
            "stale-generation-read": (free & ~evicted) | (foreign & earlier),
            "wrong-position-read": foreign & ~earlier,
            "unwritten-read": real & ~free & ~foreign & ~written,
            "row-changed-since-write": changed,
        }
        for kind, rows in found.items():
            if bool(rows.any()):
                self._add(kind, call, keys[rows], slots[rows])

    def _evicted(self, call: AttentionCall, keys: torch.Tensor) -> torch.Tensor:
        """Return ``[N]`` bool: positions that an eviction took."""
        found = torch.zeros_like(keys, dtype=torch.bool)
        if call.group is KVGroup.SLIDING:
            for request in call.requests:
                session = request.span.session
                end = self._sessions.evicted(session)
                found |= (sessions_of(keys) == session) & (positions_of(keys) < end)
        return found

    def _add(self, kind: str, call: AttentionCall, keys: torch.Tensor, slots: torch.Tensor) -> None:
        mine = sessions_of(keys) == sessions_of(keys[0])
        positions, read = positions_of(keys[mine]).tolist(), slots[mine].tolist()
        states = self._states[call.group]
        owner = owner_of(int(states.last_keys(slots[:1])))
        user = owner_of(int(keys[0]))
        whose = ""
        if owner not in (None, user) and kind != "sentinel-read":
            owns = "owned" if int(states.status[slots[0]]) == FREE else "owns"
            whose = f": {owner} {owns} {'it' if len(set(read)) == 1 else 'the first'}"
        meaning = _MEANINGS[kind]
        if kind == "stale-generation-read":
            generation, step = int(states.generation[slots[0]]), int(states.write_step[slots[0]])
            if generation == 0:
                meaning = "which nobody has owned in this run"
            else:
                written = f"was written at step {step}" if step >= 0 else "nobody has written"
                whose += f", in generation {generation}, and what lies there {written}"
        self._report(
            kind,
            f"{positions_text(int(sessions_of(keys[0])), positions)} {be(positions)} read from"
            f" {slots_text(call.group, read)}, {meaning}{whose}",
            layer=call.layer,
            group=call.group,
            positions=positions,
            slots=read,
            owner=None if kind == "sentinel-read" else owner,
            user=user,
        )


_Shape = tuple[tuple[tuple[Span, int, int], ...], tuple[bool, ...], int | None, int]
