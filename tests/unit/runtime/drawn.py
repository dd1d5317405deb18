"""Scripts that hypothesis draws: several sessions that begin, go on, end, and take over."""

from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from swarepro.case import RowsSpec, ScriptEntry
from swarepro.plan import Finish, Phase, Reuse, RunPlan, Span
from tests.unit.runtime.scripted import (
    RESET,
    STAGES,
    WINDOW_LEFT,
    Pools,
    batch,
    decode,
    finish,
    prefill,
    prompt,
    reuse,
    script_plan,
)
from tests.unit.runtime.slot_books import SlotBooks, smallest

MOST_DECODED = 4
ROOMY = Pools()


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A drawn script and what it runs on."""

    script: tuple[ScriptEntry, ...]
    prompts: tuple[tuple[int, ...], ...]
    pools: Pools
    stages: str | None

    def plan(self) -> RunPlan:
        """Return its plan."""
        return script_plan(self.script, self.prompts, self.pools, self.stages)

    def tight(self) -> "Script":
        """Return the same script on the smallest pools in which it runs."""
        full, swa = smallest(self.plan(), window_left=WINDOW_LEFT)
        return replace(self, pools=replace(self.pools, capacity=full, swa_capacity=swa))


@dataclass(slots=True)
class _Walk:
    """Where the sessions of a script stand while it is drawn."""

    prompts: tuple[tuple[int, ...], ...]
    books: SlotBooks
    frontier: dict[int, int] = field(default_factory=dict)
    state: dict[int, str] = field(default_factory=dict)
    entries: list[ScriptEntry] = field(default_factory=list)
    waiting: set[int] = field(default_factory=set)
    """Sessions that took over a prefix and have computed nothing yet."""

    def those(self, state: str) -> list[int]:
        """Return the sessions in a state: new, running, kept, finished."""
        return [s for s in range(len(self.prompts)) if self.state.get(s, "new") == state]

    def endable(self) -> list[int]:
        """Return the running sessions that have computed something."""
        return [session for session in self.those("running") if session not in self.waiting]

    def able(self) -> list[int]:
        """Return the sessions that can compute rows; of the new ones the first."""
        return [
            session
            for session in self.those("running") + self.those("new")[:1]
            if self.frontier.get(session, 0) < len(self.prompts[session]) + MOST_DECODED
        ]

    def offers(self) -> list[tuple[int, int, int]]:
        """Return what can be taken over: new session, kept session, rows."""
        found = []
        for of in self.those("kept"):
            for session in self.those("new"):
                most = min(len(self.prompts[session]) - 1, len(self.prompts[of]))
                for rows in range(self.books.page_size, most + 1, self.books.page_size):
                    same = self.prompts[session][:rows] == self.prompts[of][:rows]
                    if same and self.books.reusable(of, rows) == rows:
                        found.append((session, of, rows))
        return found

    def run(self, rows: list[RowsSpec]) -> None:
        """Compute one step."""
        spans = []
        for wanted in rows:
            start = self.frontier.get(wanted.session, 0)
            phase = Phase.DECODE if wanted.decode else Phase.PREFILL
            end = start + (wanted.prefill or 1)
            spans.append(Span(session=wanted.session, start=start, end=end, phase=phase))
            self.frontier[wanted.session] = end
            self.state[wanted.session] = "running"
            self.waiting.discard(wanted.session)
        self.books.begin(tuple(spans))
        self.books.end(tuple(spans))
        self.entries.append(batch(*rows))


@st.composite
def scripts(
    draw: st.DrawFn,
    *,
    most_sessions: int = 4,
    most_rows: int = 24,
    most_chunk: int = 12,
    most_entries: int = 12,
    resets: bool = True,
) -> Script:
    """Draw a script, with roomy pools."""
    count = draw(st.integers(2, most_sessions))
    page_size = draw(st.sampled_from([1, 3, 4, 16]))
    if page_size == 16:
        most_rows += 16
    # Most of one seed: such prompts begin alike.
    prompts = tuple(
        prompt(draw(st.integers(page_size // 2 + 1, most_rows)), draw(st.sampled_from([1, 1, 2])))
        for _ in range(count)
    )
    pools = replace(ROOMY, page_size=page_size, evict=draw(st.booleans()))
    walk = _Walk(
        prompts,
        SlotBooks(
            page_size=page_size,
            full_pages=pools.capacity // page_size,
            swa_pages=pools.swa_capacity // page_size,
            window_left=WINDOW_LEFT,
            evicts=pools.evict,
        ),
    )
    for _ in range(draw(st.integers(4, most_entries))):
        _entry(draw, walk, most_chunk, resets=resets)
    for session in [*walk.those("new"), *sorted(walk.waiting)]:
        walk.run([_rows(draw, walk, session, most_chunk)])  # a script runs every session it has
    return Script(
        script=tuple(walk.entries),
        prompts=prompts,
        pools=pools,
        stages=draw(st.sampled_from(STAGES)),
    )


def _entry(draw: st.DrawFn, walk: _Walk, most_chunk: int, *, resets: bool) -> None:
    kinds = ["reuse"] * 6 if walk.offers() else []
    kinds += ["batch"] * 4 if walk.able() else []
    kinds += ["finish", "keep", "keep"] if walk.endable() else []
    is_after_step = bool(walk.entries and walk.entries[-1].rows)
    if resets and is_after_step and walk.those("new") and not walk.waiting:
        kinds.append("reset")
    kind = draw(st.sampled_from(kinds)) if kinds else "none"
    if kind == "batch":
        able = walk.able()
        some = draw(st.lists(st.sampled_from(able), min_size=1, max_size=3, unique=True))
        walk.run([_rows(draw, walk, session, most_chunk) for session in some])
    elif kind in ("finish", "keep"):
        session = draw(st.sampled_from(walk.endable()))
        walk.entries.append(finish(session, keep=kind == "keep"))
        walk.state[session] = "kept" if kind == "keep" else "finished"
        walk.books.act(Finish(session=session, keep=kind == "keep"))
    elif kind == "reuse":
        session, of, rows = draw(st.sampled_from(walk.offers()))
        walk.entries.append(reuse(session, of, rows))
        walk.state[session], walk.state[of] = "running", "finished"
        walk.frontier[session] = rows
        walk.waiting.add(session)
        walk.books.act(Reuse(session=session, of=of, rows=rows))
    elif kind == "reset":
        for session in walk.those("running") + walk.those("kept"):
            walk.state[session] = "finished"
        walk.books.reset()
        walk.entries.append(RESET)
        # Something has to follow a reset, and no finish or reuse before it.
        able = walk.able()
        walk.run([_rows(draw, walk, draw(st.sampled_from(able)), most_chunk)])


def _rows(draw: st.DrawFn, walk: _Walk, session: int, most_chunk: int) -> RowsSpec:
    left = len(walk.prompts[session]) - walk.frontier.get(session, 0)
    if left <= 0:
        return decode(session)
    most = min(left, most_chunk)
    return prefill(session, draw(st.one_of(st.just(most), st.integers(1, most))))
